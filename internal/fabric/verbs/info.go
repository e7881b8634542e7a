package verbs

import "net/netip"

// DeviceInfo describes an RDMA device of this machine.
type DeviceInfo struct {
	Name string `json:"name"`
	// Node is the device's character device, such as /dev/infiniband/uverbs0.
	Node string `json:"node"`
	// Err says why the device could not be opened; what follows is empty then.
	Err      string     `json:"error,omitempty"`
	GUID     string     `json:"guid"`
	Firmware string     `json:"firmware"`
	Limits   Limits     `json:"limits"`
	Ports    []PortInfo `json:"ports"`
}

// Limits are what a device has.
type Limits struct {
	MaxQP        int    `json:"max_qp"`
	MaxQPWR      int    `json:"max_qp_wr"`
	MaxSGE       int    `json:"max_sge"`
	MaxCQ        int    `json:"max_cq"`
	MaxCQE       int    `json:"max_cqe"`
	MaxMR        int    `json:"max_mr"`
	MaxMRSize    uint64 `json:"max_mr_size"`
	MaxPD        int    `json:"max_pd"`
	MaxRdAtomic  int    `json:"max_rd_atomic"`
	AtomicGlobal bool   `json:"atomic_global"`
	Atomic       bool   `json:"atomic"`
}

// PortInfo describes a port.
type PortInfo struct {
	Number int `json:"number"`
	// State is "ACTIVE", "DOWN" and so on, as ibv_devinfo has it without the
	// prefix.
	State string `json:"state"`
	// LinkLayer is "Ethernet" or "InfiniBand".
	LinkLayer string `json:"link_layer"`
	// MaxMTU and ActiveMTU are in bytes.
	MaxMTU    int `json:"max_mtu"`
	ActiveMTU int `json:"active_mtu"`
	LID       int `json:"lid"`
	// GRHRequired: a port of InfiniBand that takes packets with a global route header only, as of a virtual function.
	GRHRequired bool `json:"grh_required,omitempty"`
	// GIDs are the filled entries of the GID table.
	GIDs []GID `json:"gids"`
	// Chosen is the index of the GID that AutoGID stands for, -1 if there is
	// none; Why says what spoke for it.
	Chosen int    `json:"chosen"`
	Why    string `json:"why"`
}

// GID is an entry of a GID table.
type GID struct {
	Index int        `json:"index"`
	Addr  netip.Addr `json:"gid"`
	// Type is "IB", "RoCE v1" or "RoCE v2".
	Type string `json:"type"`
	// Netdev is the network interface the entry belongs to, if known.
	Netdev string `json:"netdev,omitempty"`
}
