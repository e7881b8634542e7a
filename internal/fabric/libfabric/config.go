package libfabric

// Name is the provider's name in the configuration.
const Name = "libfabric"

// Config selects what of libfabric is used.
type Config struct {
	// Provider is libfabric's name of a provider, such as "tcp;ofi_rxm", "shm" or
	// "efa". It must be the same on all nodes.
	Provider string
	// Domain is the name of one of the provider's domains, such as a network interface or
	// an RDMA device; empty: the first one.
	Domain string
	// Source is the address that the provider uses, for those that have addresses of IP;
	// empty: the one that peers are told to connect to.
	Source string
}

// Default returns the configuration used unless something else is asked for.
func Default() Config { return Config{Provider: rxmProvider} }
