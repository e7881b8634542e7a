package config

import (
	"os"
	"strings"
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
	// Libfabric is the section [libfabric].
	Libfabric Libfabric
	// TLS is the section [tls].
	TLS TLS
	// Agent is the section [agent].
	Agent Agent
	// GroupSend is the section [group_send].
	GroupSend GroupSend
	// Lanes is the section [lanes].
	Lanes Lanes
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
	// Observe is the section [observe].
	Observe Observe
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
	// LinkHold is how long requests wait for a lost link to come back.
	LinkHold time.Duration
	// HangLimit is for how long the core may make no progress; 0 for ever.
	HangLimit time.Duration
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
	// Congestion is the congestion control of the provider tcp's connections: "auto", "system" or
	// the kernel's name of one.
	Congestion string
}

// Libfabric selects what of libfabric is used. The fields mean what those of the
// libfabric provider's configuration mean.
type Libfabric struct {
	// Provider is libfabric's name of a provider.
	Provider string
	// Domain is one of its domains. Empty: the first.
	Domain string
	// Source is the address of this node. Empty: what peers are told to connect to.
	Source string
}

// Verbs selects the RDMA device and gives the attributes of its queue pairs. The
// fields mean what those of the verbs provider's configuration mean.
type Verbs struct {
	// Device is the name of the device. Empty: the first with an active port that
	// has the GID of GIDIndex.
	Device string
	// Port counts from 1. Zero: the first active one with that GID.
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

// TLS is how nodes know each other and what is encrypted between them.
type TLS struct {
	// Mode is TLSOff or TLSRequired.
	Mode string
	// Cert, Key and CA are absolute paths of PEM files: this node's certificate, its
	// private key, and the authorities that peers' certificates must lead to. Never
	// empty if Mode is TLSRequired.
	Cert, Key, CA string
	// Allow are the nodes that may connect to this one, each a peer. Empty: all peers.
	Allow []string
	// Data says what the data connections have: TLSDataTLS is mutual TLS like that of
	// the bootstrap, "" and "plain" are both none, but "plain" says that the operator
	// knows.
	Data string
}

// The modes of TLS.
const (
	TLSOff      = "off"
	TLSRequired = "required"
	// TLSDataTLS is the value of Data for TLS.
	TLSDataTLS = "tls"
)

// Agent shapes the threads that move messages.
type Agent struct {
	// Count is the number of agents.
	Count int
	// Idle is "busy", "adaptive" or "event".
	Idle string
	// Spin is how long an adaptive agent polls before it sleeps, where that pays.
	Spin time.Duration
	// CPUs are the processors that agents keep to, agent number i to the i-th of them, from
	// the first again if there are fewer; empty: to none.
	CPUs []int
	// IOUring is false to make no system call of io_uring.
	IOUring bool
}

// GroupSend is the policy for sending consecutive messages with one post.
type GroupSend struct {
	// Enabled is false to send each message with a post of its own.
	Enabled bool
	// MaxMessages is the most messages of one group.
	MaxMessages int
	// MaxGroupDelay is the most by which a message may be held back so that its
	// group grows. Zero: nothing is held back.
	MaxGroupDelay time.Duration
}

// Lanes is how many lanes lead to a peer and how requests are spread over them.
type Lanes struct {
	// PerPeer is how many lanes of each class lead to a peer, and to this node.
	PerPeer int
	// Balance is "round-robin" or "least-outstanding".
	Balance string
}

// MaxLanesPerPeer is how many lanes of a class a node accepts from a peer, whatever
// its own PerPeer.
const MaxLanesPerPeer = 8

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
	// WorkerSlots is the most slots of one ring that one worker may hold, in
	// percent of the ring.
	WorkerSlots int
	// WorkerBytes is the most bytes of slots that one worker may hold in all rings
	// together. Zero: no limit.
	WorkerBytes int
	// SpillAfter is how long an answer may wait in its slots for its worker.
	SpillAfter time.Duration
	// SpillBytes is the most bytes of answers that the daemon has moved out of
	// their slots and a worker has not read.
	SpillBytes int
	// SpillTimeout is how long a worker may leave such answers unread. Zero: for
	// ever.
	SpillTimeout time.Duration
	// Strikes is how many errors against the protocol that are a worker's for certain,
	// within 10 s, get it disconnected. Zero: none do.
	Strikes int
	// DomainStrikes is how many errors that are nobody's for certain, within 10 s, get a
	// domain new memory while a disconnected process of it lives. Zero: none do.
	DomainStrikes int
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

// Observe is where the daemon can be looked at.
type Observe struct {
	// Counters is the absolute path of the file of counters, Auto or Off; see
	// Config.CountersPath.
	Counters string
	// CountersMode is the permissions of that file.
	CountersMode os.FileMode
	// Socket is the absolute path of the Unix socket that speaks HTTP, Auto or Off; see
	// Config.ObserveSocket.
	Socket string
	// SocketMode is the permissions of Socket.
	SocketMode os.FileMode
	// Listen is the host:port where HTTP is spoken by TCP. Empty: nowhere.
	Listen string
	// Hosts are names with a dot by which it may be asked, or "*" for any.
	Hosts []string
	// Pprof is whether /debug/pprof is there by TCP, too.
	Pprof bool
	// ReadyPeers is "none", "any" or "all".
	ReadyPeers string
}

// What the paths of Observe may be besides paths: next to node.socket, and nowhere.
const (
	Auto = "auto"
	Off  = "off"
)

// LockFile returns the path of the file that the daemon on a socket has locked, and PIDFile that of the one with the
// process id of its supervisor, in decimal and with a newline.
func LockFile(socket string) string { return socket + ".lock" }

// PIDFile is described at LockFile.
func PIDFile(socket string) string { return socket + ".pid" }

// CountersPath returns where the file of counters is; "" for nowhere. By default it is
// next to the socket, with the ending ".counters" instead of ".sock".
func (c *Config) CountersPath() string { return c.beside(c.Observe.Counters, ".counters") }

// ObserveSocket returns where the Unix socket is that speaks HTTP; "" for nowhere. By
// default it is next to the socket of workers, with the ending ".http" instead of ".sock".
func (c *Config) ObserveSocket() string { return c.beside(c.Observe.Socket, ".http") }

// beside returns what a key of Observe means.
func (c *Config) beside(value, ending string) string {
	switch value {
	case Off:
		return ""
	case Auto:
		return strings.TrimSuffix(c.Node.Socket, ".sock") + ending
	}
	return value
}

// Log is what is logged and how it looks.
type Log struct {
	// Level is "debug", "info", "warn" or "error".
	Level string
	// Format is "console", "json" or "auto".
	Format string
}
