// Package fabric is the narrow interface between the daemon and a transport
// with the semantics of an RDMA reliable connection: one-sided writes into
// registered memory of the peer, with an immediate that consumes one of its
// posted receives, reads, atomics and two-sided sends, all reported through a
// completion queue.
//
// It is batch first: a list of work requests goes down in one call and a list
// of completions comes up in one call, so that a cgo provider (libibverbs,
// libfabric) crosses into C twice a cycle and not twice a message. The names
// are those of the field: queue pair ("endpoint" here, as in libfabric),
// completion queue, memory region, rkey, work request, immediate.
//
// # Ownership
//
// Everything of one CQ - its endpoints' PostSend, PostRecv and Activate, and the
// CQ's own methods - belongs to one goroutine, the agent. Before Connect the one
// that made an endpoint may call its PostRecv. Open, AllocPD, Register,
// CreateCQ, CreateEndpoint, Connect and the Close methods of devices, protection
// domains and memory regions may be called from others. Memory named by a work
// request must stay valid and registered until its completion has been polled.
package fabric

import (
	"context"

	"github.com/rdmad/rdmad/internal/poller"
)

// Provider makes devices of one kind: "tcp", "verbs", "libfabric", or a fake.
type Provider interface {
	// Name is the value of the configuration's fabric.provider key.
	Name() string
	// Open opens the device that the options name. It must only be called by
	// the process that will use the device, after its last fork.
	Open(Options) (Device, error)
}

// Options select and tune a device. A provider ignores what it has no use for.
type Options struct {
	// Listen is the host:port on which a provider that needs one accepts
	// connections; port 0 lets the system choose.
	Listen string
	// Advertise is the host that peers are told to connect to. Empty: the host
	// of Listen.
	Advertise string
}

// Caps says what a device can do.
type Caps struct {
	// MaxInline is the largest WR with FlagInline, in bytes.
	MaxInline int
	// MaxSendDepth and MaxRecvDepth bound EndpointAttr's depths.
	MaxSendDepth, MaxRecvDepth int
	// Atomics reports whether OpCompareSwap and OpFetchAdd work.
	Atomics bool
	// OrderedWrites reports that writes of one endpoint land in posting order
	// and that a write-with-imm's completion implies all earlier writes.
	OrderedWrites bool
	// UnsizedImm reports that the completion of an arrived write-with-imm does not say how
	// long the write was: its Len is 0.
	UnsizedImm bool
	// LateAccess reports that what the peer has begun when a memory region is closed may go on until the
	// endpoint is closed by which it came: it reads and writes where the region was.
	LateAccess bool
	// Protection is what becomes of requests that the peer does not allow.
	Protection Protection
}

// Protection says what a device does with a request of the peer for memory that is not
// registered for it.
type Protection uint8

const (
	// ProtectionFull: nothing changes, the request ends with StatusRemoteAccess, and the
	// connection with it at both ends.
	ProtectionFull Protection = iota
	// ProtectionVague is ProtectionFull with any status but StatusSuccess, for requests before
	// and after it, too, of which some may be carried out. Registered memory may be read and have
	// atomics done to it without the right, by a peer that knows the key.
	ProtectionVague
	// ProtectionNone: the peer may read whatever it names, and a request that is not carried
	// out may never complete. Only for peers that could do so without the device.
	ProtectionNone
)

// Access is what a peer may do with a memory region.
type Access uint32

const (
	// AccessRemoteWrite lets the peer write.
	AccessRemoteWrite Access = 1 << iota
	// AccessRemoteRead lets the peer read.
	AccessRemoteRead
	// AccessRemoteAtomic lets the peer do atomics.
	AccessRemoteAtomic
)

// Device is an opened device.
type Device interface {
	// Caps returns what the device can do.
	Caps() Caps
	// AllocPD makes a protection domain.
	AllocPD() (ProtectionDomain, error)
	// CreateCQ makes a completion queue for up to depth completions: at least
	// the sum of the depths of its endpoints. With a poller the CQ announces
	// completions through descriptors it registers there (a completion
	// channel); without one it can only be polled.
	CreateCQ(depth int, p *poller.Poller) (CQ, error)
	// Close releases the device. Its endpoints, queues and protection domains
	// must have been closed before.
	Close() error
}

// ProtectionDomain joins regions and endpoints: a peer reaches the regions of the
// protection domain of the endpoint it is connected to, as far as their Access
// allows, and no others, whatever keys it sends. Work requests use local memory of
// their endpoint's protection domain only.
type ProtectionDomain interface {
	// Register makes mem usable as the source of work requests and, as access
	// says, as the target of the peer's. mem must stay valid until the region
	// is closed.
	Register(mem []byte, access Access) (MemoryRegion, error)
	// CreateEndpoint makes an unconnected endpoint.
	CreateEndpoint(EndpointAttr) (Endpoint, error)
	// Close releases the protection domain. Its endpoints and regions must have
	// been closed before.
	Close() error
}

// RemoteKey names a registered region to a peer. It is not a secret.
type RemoteKey struct {
	// Addr is the remote address of the region's first byte.
	Addr uint64 `json:"addr"`
	// Key is the rkey.
	Key uint64 `json:"key"`
	// Len is the size in bytes.
	Len uint64 `json:"len"`
}

// MemoryRegion is registered memory.
type MemoryRegion interface {
	// Bytes is the registered memory.
	Bytes() []byte
	// Remote is what a peer needs to write to or read from the region.
	Remote() RemoteKey
	// Close ends the registration. A peer's access fails from then on, but for what has begun: see
	// Caps.LateAccess. After an error the region may still be registered, and can be
	// closed again.
	Close() error
}

// EndpointAttr describes a new endpoint.
type EndpointAttr struct {
	// CQ receives the completions of sends and receives.
	CQ CQ
	// Tag comes back in every Completion of the endpoint.
	Tag uint64
	// SendDepth and RecvDepth are how many work requests may be outstanding.
	SendDepth, RecvDepth int
	// Peer is the node at the other end. A provider whose connections prove who that
	// is (tcp with TLS) connects with no other; others ignore it.
	Peer string
}

// Role decides who connects and who accepts where a provider needs to know.
type Role int

const (
	// Active is the side that connects.
	Active Role = iota
	// Passive is the side that accepts.
	Passive
)

// MaxAddress is the largest endpoint address in bytes.
const MaxAddress = 512

// Endpoint is one end of a reliable connection (a queue pair).
type Endpoint interface {
	// Address returns what the peer's Connect needs: at most MaxAddress opaque
	// bytes, carried by the bootstrap connection.
	Address() []byte
	// Connect joins the endpoint with the peer's. Both sides must call it,
	// with opposite roles; it returns when the connection is usable or ctx
	// ends. Errors: *ConnectError.
	Connect(ctx context.Context, peer []byte, role Role) error
	// Activate starts the flow of completions; called once, by the owner of
	// the CQ, after Connect.
	Activate() error
	// PostSend queues work requests in order and returns how many were taken.
	// It takes fewer than all, with ErrQueueFull, when the send queue has no
	// room: poll the CQ and post the rest. It keeps no reference to wrs.
	PostSend(wrs []SendWR) (int, error)
	// PostRecv queues receives. Every arriving send and every arriving
	// immediate consumes one; without one the peer has to wait. It takes fewer
	// than all, with ErrQueueFull, beyond RecvDepth.
	PostRecv(wrs []RecvWR) (int, error)
	// Close ends the connection. Outstanding work requests complete with
	// StatusFlushed, in a Poll after this call. After the CQ is closed it does
	// nothing.
	Close() error
}

// Op is what a work request does or a completion reports.
type Op uint8

const (
	// OpWrite writes Local to Remote.
	OpWrite Op = iota + 1
	// OpWriteImm is OpWrite and then hands Imm to the peer, consuming one of
	// its receives.
	OpWriteImm
	// OpRead reads Remote into Local.
	OpRead
	// OpSend sends Local to the peer's next receive.
	OpSend
	// OpCompareSwap compares the 8 aligned bytes at Remote (in the peer's byte
	// order) with Compare, stores Swap if equal, and puts the old value in the
	// 8 bytes of Local.
	OpCompareSwap
	// OpFetchAdd adds Swap to the 8 bytes at Remote and puts the old value in
	// Local.
	OpFetchAdd
	// OpRecv reports an arrived OpSend in a posted receive.
	OpRecv
	// OpRecvImm reports an arrived OpWriteImm.
	OpRecvImm
	// OpDisconnect reports, once and without a work request, that the
	// connection is gone. No further completions but flushed ones follow. It
	// is not reported to the side that called Close.
	OpDisconnect
)

// Flags of a work request.
type Flags uint8

const (
	// FlagSignaled asks for a completion also in case of success; errors are
	// always reported. A completion covers all earlier unsignaled work
	// requests of its endpoint.
	FlagSignaled Flags = 1 << iota
	// FlagInline copies Local at the time of the call, so that its memory can
	// be reused at once. At most Caps.MaxInline bytes; an endpoint with a deep send
	// queue may take less, and returns ErrInvalid for more.
	FlagInline
)

// Local is the local side of a work request: Len bytes at Offset of a region.
type Local struct {
	Region MemoryRegion
	Offset uint64
	Len    uint32
}

// SendWR is a work request for the send queue.
type SendWR struct {
	// ID comes back in the completion.
	ID    uint64
	Op    Op
	Flags Flags
	// Imm goes to the peer with OpWriteImm.
	Imm   uint32
	Local Local
	// RemoteAddr and RemoteKey say where: RemoteKey.Addr plus an offset, and
	// RemoteKey.Key.
	RemoteAddr uint64
	RemoteKey  uint64
	// Compare and Swap are the operands of atomics.
	Compare, Swap uint64
}

// RecvWR is a work request for the receive queue. With an empty Local it can
// take immediates and empty sends.
type RecvWR struct {
	ID    uint64
	Local Local
}

// Completion reports the end of a work request.
type Completion struct {
	// Tag is the EndpointAttr's.
	Tag uint64
	// ID is the work request's; 0 for OpDisconnect.
	ID     uint64
	Op     Op
	Status Status
	// Imm is valid for OpRecvImm.
	Imm uint32
	// Len is the number of bytes received, for OpRecv and, unless Caps.UnsizedImm, OpRecvImm.
	Len uint32
	// Vendor is the provider's own error code, for logs.
	Vendor uint32
}

// CQ is a completion queue.
type CQ interface {
	// Poll moves completions into c and returns their number. It never blocks.
	Poll(c []Completion) (int, error)
	// Arm prepares for a sleep on the poller: after it returned true the next
	// completion makes a descriptor ready. It returns false when completions
	// may be waiting: Poll again instead of sleeping.
	Arm() (bool, error)
	// Close releases the queue, after its endpoints were closed.
	Close() error
}

// Glancer is implemented by completion queues that learn of arrivals by a system call of the
// agent's, and can look for some of them without.
type Glancer interface {
	// Glance is called when others have had the processor. It lets the next Poll look for
	// arrivals where it may be worth it, before the agent looks for events.
	Glance()
}

// Expecter is implemented by endpoints that let nobody in but their peer.
type Expecter interface {
	// Expect says who the peer is before Connect does. Any goroutine may call it.
	Expect(peer []byte) error
}

// Expect is called for a passive end before the active one is told where it is: who dials before the passive end knows
// whom to let in is late. An address that is of no use is refused by Connect.
func Expect(e Endpoint, peer []byte) {
	if x, ok := e.(Expecter); ok {
		_ = x.Expect(peer)
	}
}

// Inliner is implemented by endpoints that carry small messages in the work request itself
// without being asked to.
type Inliner interface {
	// InlineLimit returns how many bytes a work request carries so at most.
	InlineLimit() int
}

// Attribute is something that an endpoint is made of, such as the path MTU of a queue pair.
type Attribute struct {
	// Stage is the step that set it, such as "INIT", "RTR" or "RTS".
	Stage string `json:"stage"`
	// Name is the name that the provider's own documentation uses.
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Attributer is implemented by endpoints that can tell what they are made of.
type Attributer interface {
	// Attributes returns everything that is known, grouped by stage, in the order of the
	// stages. It asks the device, and belongs to the owner of the CQ, as PostSend does;
	// before Connect it tells what is known by then. It is ErrClosed for an endpoint without
	// a device to ask.
	Attributes() ([]Attribute, error)
}

// Explainer is implemented by endpoints that know more about a failed work request
// than its Status. Any goroutine may call it.
type Explainer interface {
	// Explain returns what is known about the failure that a completion of this
	// endpoint reports, for logs, wrapping its *StatusError; nil for a
	// completion without failure.
	Explain(Completion) error
}

// Identity says what a connection really uses, for reports. What is empty or 0 is not known,
// or there is no such thing.
type Identity struct {
	// Device is the RDMA device, the network interface, or the domain.
	Device string `json:"device,omitempty"`
	// Port is the device's port.
	Port int `json:"port,omitempty"`
	// Address is this end's: a GID where there are GIDs.
	Address string `json:"address,omitempty"`
	// RDMA says that Address is the GID with the index GIDIndex.
	RDMA     bool `json:"rdma,omitempty"`
	GIDIndex int  `json:"gid_index,omitempty"`
	// MTU is the largest packet's in bytes: of the path for RDMA, else of the interface.
	MTU int `json:"mtu,omitempty"`
	// Transport is what carries the data, such as "TCP", "RoCE v2" or "tcp;ofi_rxm".
	Transport string `json:"transport,omitempty"`
}

// Identifier is implemented by endpoints that know what they use. It is asked after Connect,
// by any goroutine.
type Identifier interface {
	// Identity returns what the connection uses.
	Identity() Identity
}
