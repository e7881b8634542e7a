package attach

import (
	"encoding/json"
	"fmt"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Protocol is the version of the control protocol; a daemon refuses others.
const Protocol = 1

// MaxAsks is how many questions of one worker may wait for their answers; a
// daemon ends the attachment of a worker that has more.
const MaxAsks = 64

// MaxMessage is the largest message in bytes.
const MaxMessage = 128 << 10

// Type tells messages apart.
type Type string

// Messages from a worker.
const (
	// TypeHello is the first message of a worker. Answer: TypeWelcome or
	// TypeFail, after which the daemon closes.
	TypeHello Type = "hello"
	// TypeResolve asks for the way to a method. Answer: TypeLane for every
	// lane the worker does not have yet, then TypeResolved, or TypeFail.
	TypeResolve Type = "resolve"
	// TypeRegister offers methods. Answer: TypeRegistered or TypeFail.
	TypeRegister Type = "register"
	// TypeMapped says that a service worker has mapped a lane, so that the
	// daemon may deliver requests from it.
	TypeMapped Type = "mapped"
	// TypeBye says that the worker will not touch the shared memory any more
	// and is about to close the connection: its slots can be freed at once.
	TypeBye Type = "bye"
	// TypeStatus asks for the daemon's state. Answer: TypeStatusIs.
	TypeStatus Type = "status"
	// TypePing asks the daemon to exchange one message with a peer. Answer:
	// TypePong or TypeFail.
	TypePing Type = "ping"
	// TypeAlloc asks for a region. Answer: TypeRegion, with the region's segment,
	// or TypeFail.
	TypeAlloc Type = "alloc"
	// TypeFree says that the worker uses a region no more.
	TypeFree Type = "free"
	// TypeExport asks the daemon to make a region known to a node, so that
	// requests to it can refer to the region. Answer: TypeExported or TypeFail.
	TypeExport Type = "export"
)

// Messages from the daemon.
const (
	TypeWelcome    Type = "welcome"
	TypeFail       Type = "fail"
	TypeResolved   Type = "resolved"
	TypeRegistered Type = "registered"
	TypeStatusIs   Type = "status-is"
	TypePong       Type = "pong"
	TypeRegion     Type = "region"
	TypeExported   Type = "exported"
	// TypeLane hands over a lane; its segment comes with the message.
	TypeLane Type = "lane"
	// TypeClosed says that a lane is closed for good.
	TypeClosed Type = "closed"
	// TypeGoodbye says that the daemon is about to close the connection.
	TypeGoodbye Type = "goodbye"
)

// Role is what a worker attaches as.
type Role string

const (
	// RoleClient makes requests.
	RoleClient Role = "client"
	// RoleService answers requests.
	RoleService Role = "service"
	// RoleTool only asks for status and pings; it gets no segments.
	RoleTool Role = "tool"
)

// Message is the envelope of all messages. Seq of an answer is that of the
// question; 0 in messages that answer nothing.
type Message struct {
	Type Type   `json:"type"`
	Seq  uint64 `json:"seq,omitempty"`

	Hello      *Hello          `json:"hello,omitempty"`
	Welcome    *Welcome        `json:"welcome,omitempty"`
	Fail       *Fail           `json:"fail,omitempty"`
	Target     *Target         `json:"target,omitempty"`
	Route      *Route          `json:"route,omitempty"`
	Lane       *Lane           `json:"lane,omitempty"`
	Region     *RegionInfo     `json:"region,omitempty"`
	Methods    []Method        `json:"methods,omitempty"`
	MethodIDs  []uint32        `json:"method_ids,omitempty"`
	Node       string          `json:"node,omitempty"`
	RTT        int64           `json:"rtt_ns,omitempty"`
	StatusJSON json.RawMessage `json:"status,omitempty"`
	Reason     string          `json:"reason,omitempty"`

	// memory is the mapped segment of a TypeRegion that a session has received.
	memory *shm.Segment
}

// Hello introduces a worker.
type Hello struct {
	Protocol int    `json:"protocol"`
	ABI      uint32 `json:"abi"`
	Role     Role   `json:"role"`
	// Name is for people: it shows up in status output.
	Name string `json:"name"`
}

// Welcome accepts a worker. For clients and services three descriptors come
// with it: the domain segment, the worker segment, and the domain's eventfd.
type Welcome struct {
	ABI    uint32 `json:"abi"`
	Node   string `json:"node"`
	Domain string `json:"domain"`
	// ID is the attach id: the owner in slot words.
	ID int `json:"id"`
}

// Lane describes a lane. The lane's segment comes with the message.
type Lane struct {
	ID       uint16         `json:"id"`
	Class    string         `json:"class"`
	Peer     string         `json:"peer"`
	Geometry slots.Geometry `json:"geometry"`
}

// RegionInfo describes a region. Index and Generation are the halves of its
// slots.RegionID; Size is how many bytes it has, behind the header page of its
// segment.
type RegionInfo struct {
	Index      uint32 `json:"index,omitempty"`
	Generation uint32 `json:"generation,omitempty"`
	Size       int64  `json:"size,omitempty"`
}

// ID returns the region's id.
func (r *RegionInfo) ID() slots.RegionID { return slots.MakeRegionID(r.Index, r.Generation) }

// InfoOf names a region.
func InfoOf(id slots.RegionID) *RegionInfo {
	return &RegionInfo{Index: id.Index(), Generation: id.Generation()}
}

// Target names a method: Node may be empty for any node that serves it.
type Target struct {
	Node    string `json:"node,omitempty"`
	Service string `json:"service"`
	Method  string `json:"method"`
	// WaitMillis bounds how long the daemon may wait for a peer that is not
	// connected, in milliseconds; its own limit applies too.
	WaitMillis int64 `json:"wait_ms,omitempty"`
}

// String returns node/service/method.
func (t Target) String() string { return t.Node + "/" + t.Service + "/" + t.Method }

// Route is the way to a method.
type Route struct {
	Node string `json:"node"`
	// Method is the id to put into headers.
	Method uint32 `json:"method"`
	// Answer is the largest answer the method declared, in bytes; see
	// AnswerLikeRequest.
	Answer int `json:"answer"`
	// Lanes are the ids of the lanes that lead there, smallest slots first.
	Lanes []uint16 `json:"lanes"`
}

// Method offers a method of a service.
type Method struct {
	Service string `json:"service"`
	Method  string `json:"method"`
	Answer  int    `json:"answer"`
}

// AnswerLikeRequest, as a method's answer size, says that answers are no larger
// than the request.
const AnswerLikeRequest = -1

// MaxNameLen bounds names of services and methods, in bytes.
const MaxNameLen = 63

// CheckName reports whether s can name a service or a method: 1 to MaxNameLen
// letters, digits, dots, dashes or underscores.
func CheckName(s string) error {
	if len(s) == 0 || len(s) > MaxNameLen {
		return fmt.Errorf("name %.80q: want 1 to %d bytes", s, MaxNameLen)
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return fmt.Errorf("name %.80q: only letters, digits, '.', '-' and '_' are allowed", s)
		}
	}
	return nil
}
