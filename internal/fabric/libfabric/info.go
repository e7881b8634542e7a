package libfabric

// DeviceInfo describes something that libfabric offers: an endpoint type of a domain of a
// provider.
type DeviceInfo struct {
	// Provider, Fabric and Domain are libfabric's names of them.
	Provider string `json:"provider"`
	Fabric   string `json:"fabric"`
	Domain   string `json:"domain"`
	// Version is the provider's.
	Version string `json:"version"`
	// Address is its own address, if it has one to show, Format the format of addresses.
	Address string `json:"address,omitempty"`
	Format  string `json:"address_format"`
	// Endpoint is the type of endpoints: "RDM", "MSG" or "DGRAM".
	Endpoint string `json:"endpoint"`
	// Caps, Modes and MRModes are the names of what it can, of what it asks of its user, and of
	// what it asks of registered memory, without libfabric's prefixes.
	Caps    []string `json:"caps"`
	Modes   []string `json:"modes"`
	MRModes []string `json:"mr_modes"`
	// Progress says who moves data on: "auto" or "manual".
	Progress string `json:"data_progress"`
	Limits   Limits `json:"limits"`
	// Delivery says that completions tell when data has landed in the peer's memory, Descriptors that
	// queues have descriptors to wait for, Atomics that those of 8 bytes work. Only of what is
	// usable.
	Delivery    bool `json:"delivery_complete"`
	Descriptors bool `json:"wait_descriptors"`
	Atomics     bool `json:"atomics_64"`
	// Notices says that an immediate goes as a message of its own after the write. Only of what is usable.
	Notices bool `json:"immediates_as_messages"`
	// Usable says that rdmad can use it; Why says what keeps it from that.
	Usable bool   `json:"usable"`
	Why    string `json:"why,omitempty"`
}

// Limits are what a DeviceInfo has.
type Limits struct {
	// Inject is how many bytes an operation can carry itself, MaxMessage how long one may be.
	Inject     uint64 `json:"inject_size"`
	MaxMessage uint64 `json:"max_msg_size"`
	// Data is how many bytes a write can bring with it for the peer's completion.
	Data uint64 `json:"cq_data_size"`
	// Key is the size of a key in bytes.
	Key uint64 `json:"mr_key_size"`
	// Sends and Recvs are how many operations may be under way.
	Sends uint64 `json:"tx_size"`
	Recvs uint64 `json:"rx_size"`
}
