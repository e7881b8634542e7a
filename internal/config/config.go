package config

import (
	"os"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// Config is a complete configuration. One that came from Load, Parse or Default
// has passed every check of this package.
type Config struct {
	// Node is the section [node].
	Node Node
	// Fabric is the section [fabric].
	Fabric Fabric
	// Verbs is the section [verbs].
	Verbs Verbs
	// Agent is the section [agent].
	Agent Agent
	// GroupSend is the section [group_send].
	GroupSend GroupSend
	// Memory is the section [memory].
	Memory Memory
	// Classes are the elements of [[class]], in the order of the file.
	Classes []Class
	// Domains are the elements of [[domain]], in the order of the file.
	Domains []Domain
	// Peers are the elements of [[peer]], in the order of the file.
	Peers []Peer
	// Limits is the section [limits].
	Limits Limits
	// Log is the section [log].
	Log Log
}

// Node is the daemon's identity and the sockets it is reached by.
type Node struct {
	// Name is how peers know this node. Never empty.
	Name string
	// Socket is the absolute path of the Unix socket workers attach to.
	Socket string
	// SocketMode is the permissions of Socket.
	SocketMode os.FileMode
	// Listen is the host:port of the bootstrap listener. Empty: no peers.
	Listen string
	// DrainTimeout is how long an orderly stop waits for calls in flight.
	DrainTimeout time.Duration
}

// Fabric selects and tunes the transport between nodes.
type Fabric struct {
	// Provider is "tcp", "verbs", "libfabric" or "auto".
	Provider string
	// Listen is the host:port of the tcp provider's data listener.
	Listen string
	// Advertise is the host peers are told to connect to. Empty: the host of
	// Listen or of Node.Listen if they name one, else the address that this node
	// uses towards its first peer.
	Advertise string
}

// Verbs selects the RDMA device and gives the attributes of its queue pairs. The
// fields mean what those of the verbs provider's configuration mean.
type Verbs struct {
	// Device is the name of the device. Empty: the first with an active port.
	Device string
	// Port counts from 1. Zero: the first active one.
	Port int
	// GIDIndex is an index into the port's GID table, -1 to let the provider
	// choose.
	GIDIndex int
	// Connect is "oob" or "rdmacm".
	Connect string
	// MTU is the path MTU in bytes. Zero: the port's active one.
	MTU int
	// Timeout is the exponent of the acknowledgement timeout.
	Timeout int
	// RetryCount and RNRRetry are how often a send is repeated.
	RetryCount, RNRRetry int
	// MinRNRTimer is the encoded wait that a receiver asks for.
	MinRNRTimer int
	// MaxReadAtomic bounds reads and atomics under way.
	MaxReadAtomic int
	// ServiceLevel, TrafficClass, HopLimit and PKeyIndex go into packets.
	ServiceLevel, TrafficClass, HopLimit, PKeyIndex int
	// MaxInline is how many bytes a work request may carry.
	MaxInline int
	// ConnectTimeout bounds each step of a connection by rdmacm.
	ConnectTimeout time.Duration
}

// Agent shapes the threads that move messages.
type Agent struct {
	// Count is the number of agents.
	Count int
	// Idle is "busy", "adaptive" or "event".
	Idle string
	// Spin is how long an adaptive agent polls before it sleeps.
	Spin time.Duration
}

// GroupSend is the policy for sending consecutive messages with one post.
type GroupSend struct {
	// Enabled is false to send each message with a post of its own.
	Enabled bool
	// MaxMessages is the most messages of one group.
	MaxMessages int
}

// Memory is how shared memory is made.
type Memory struct {
	// Hugepages says whether segments are made of huge pages.
	Hugepages shm.HugepageMode
}

// Class is one class of rings. Every lane has one ring of each class and a
// message goes to the class that fits it.
type Class struct {
	// Name identifies the class in commands and counters.
	Name string
	// SlotSize is the size of a slot in bytes.
	SlotSize int
	// Slots is the number of slots of a ring.
	Slots int
	// MaxRun is the most consecutive slots one message may take.
	MaxRun int
}

// Domain is a trust domain: the workers that may share rings.
type Domain struct {
	// Name identifies the domain; both ends of a lane use the same name.
	Name string
	// Users and Groups are who is admitted, as written in the file: names or
	// numeric ids.
	Users, Groups []string
	// UIDs and GIDs are Users and Groups looked up, sorted and without
	// duplicates. When Users and Groups are both empty, UIDs is the effective
	// user id of this process.
	UIDs, GIDs []uint32
}

// Peer is another node that this one connects to.
type Peer struct {
	// Name is the peer's node name. A peer that says it has another is refused.
	Name string
	// Address is the host:port of the peer's bootstrap listener.
	Address string
}

// Limits bound what one domain can make the daemon spend.
type Limits struct {
	// Workers is the most processes attached to one domain at a time.
	Workers int
	// Services is the most methods that one domain can register.
	Services int
	// ConnectWait is how long a call waits for a configured peer that is not
	// connected. Zero: it fails at once.
	ConnectWait time.Duration
	// RegionBytes is the most memory in regions of one worker, in bytes.
	RegionBytes int
	// RegionCount is the most regions of one worker.
	RegionCount int
}

// Log is what is logged and how it looks.
type Log struct {
	// Level is "debug", "info", "warn" or "error".
	Level string
	// Format is "console", "json" or "auto".
	Format string
}
