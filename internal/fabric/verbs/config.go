package verbs

import "time"

// Name is the provider's name in the configuration.
const Name = "verbs"

// Connection modes.
const (
	// ConnectOOB exchanges queue pair numbers over the daemons' bootstrap
	// connection.
	ConnectOOB = "oob"
	// ConnectCM lets librdmacm connect the queue pairs.
	ConnectCM = "rdmacm"
)

// AutoGID lets the provider choose the GID index.
const AutoGID = -1

// MaxGIDIndex is the largest index that libibverbs can be told: it has a byte for it, however long a GID table is.
const MaxGIDIndex = 255

// Config selects the device and gives the attributes of its queue pairs. Fields
// are named after ibv_qp_attr's; Default has usable values.
type Config struct {
	// Device is the name of the RDMA device, such as "mlx5_0"; empty means the
	// first one with an active port that has the GID of GIDIndex.
	Device string
	// Port is the port's number from 1; 0 means the first active one with that GID.
	Port int
	// GIDIndex is an index into the port's GID table, or AutoGID.
	GIDIndex int
	// Connect is ConnectOOB or ConnectCM.
	Connect string
	// MTU is the path MTU in bytes (256, 512, 1024, 2048 or 4096); 0 means the
	// port's active MTU. A connection uses the smaller one of its ends.
	MTU int
	// Timeout is the exponent of the acknowledgement timeout, 0 to 31: 4.096 us
	// times 2 to its power.
	Timeout int
	// RetryCount and RNRRetry, 0 to 7, say how often a send is repeated when it
	// is not acknowledged, and when the receiver is not ready; an RNRRetry of 7
	// means for ever.
	RetryCount, RNRRetry int
	// MinRNRTimer is the encoded wait, 0 to 31, that a receiver that is not
	// ready asks of its peer.
	MinRNRTimer int
	// MaxReadAtomic bounds the reads and atomics under way on a queue pair, in
	// each direction, 1 to 255; the device may have less.
	MaxReadAtomic int
	// ServiceLevel, 0 to 15, TrafficClass, 0 to 255, HopLimit, 1 to 255, and
	// PKeyIndex go into the address handle.
	ServiceLevel, TrafficClass, HopLimit, PKeyIndex int
	// MaxInline is how many bytes a write may carry in its work request; the
	// device may take less.
	MaxInline int
	// ConnectTimeout bounds a connection by rdmacm, all its steps together.
	ConnectTimeout time.Duration
}

// Default returns the configuration used unless something else is asked for.
func Default() Config {
	return Config{
		GIDIndex: AutoGID, Connect: ConnectOOB, Timeout: 14, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 12,
		MaxReadAtomic: 16, HopLimit: 64, MaxInline: 220, ConnectTimeout: 5 * time.Second,
	}
}
