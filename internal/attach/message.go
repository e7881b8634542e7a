package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/slots"
)

// Protocol is the version of the control protocol; a daemon refuses others.
const Protocol = 1

// MaxAsks is how many questions of one worker may wait for their answers; a
// daemon may end the attachment of a worker that has more.
const MaxAsks = 64

// MaxMessage is the largest message in bytes.
const MaxMessage = 128 << 10

// MaxStatus is the largest status in bytes. One that does not fit a message comes in a memfd
// with it.
const MaxStatus = 64 << 20

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
	// TypeWithdraw asks for no new requests: the worker serves nothing any more, but for exchanges that have begun.
	// Answer: TypeWithdrawn, when the worker has nothing that it had not begun with, or TypeFail.
	TypeWithdraw Type = "withdraw"
	// TypeMapped says that a service worker has mapped a lane, so that the
	// daemon may deliver requests from it.
	TypeMapped Type = "mapped"
	// TypeBye says that the worker will not touch the shared memory any more
	// and is about to close the connection: its slots can be freed at once.
	TypeBye Type = "bye"
	// TypeStatus asks for the daemon's state. Answer: TypeStatusIs.
	TypeStatus Type = "status"
	// TypeTrace begins to follow requests, if it says which, or asks for more of what was
	// found. Tools only. Answer: TypeTraced or TypeFail.
	TypeTrace Type = "trace"
	// TypePing asks the daemon to exchange one message with a peer. Answer:
	// TypePong or TypeFail.
	TypePing Type = "ping"
	// TypeAlloc asks for a region. Answer: TypeRegion, with the region's segment,
	// or TypeFail.
	TypeAlloc Type = "alloc"
	// TypeFree says that the worker uses a region no more.
	TypeFree Type = "free"
	// TypeTaken says that the worker has read an answer that came in a memfd, or the spill that came with the TypeSpilled
	// of the same Seq, and all before it: their memory is the daemon's again.
	TypeTaken Type = "taken"
	// TypeExport asks the daemon to make a region known to a node, so that
	// requests to it can refer to the region. Answer: TypeExported or TypeFail.
	TypeExport Type = "export"
	// TypeHave answers TypeResumed.
	TypeHave Type = "have"
	// TypeDrain takes the node out of service or, with Drain.Resume, puts it back. Tools
	// of root and of the daemon's user only. Answer: TypeStatusIs or TypeFail.
	TypeDrain Type = "drain"
	// TypeStacks asks what the daemon's goroutines do. No agent is asked, so there is an
	// answer when one hangs. For the same tools. Answer: TypeStatusIs with the text as a
	// JSON string, or TypeFail.
	TypeStacks Type = "stacks"
)

// Messages from the daemon.
const (
	TypeWelcome    Type = "welcome"
	TypeFail       Type = "fail"
	TypeResolved   Type = "resolved"
	TypeRegistered Type = "registered"
	TypeWithdrawn  Type = "withdrawn"
	TypeStatusIs   Type = "status-is"
	TypePong       Type = "pong"
	TypeTraced     Type = "traced"
	TypeRegion     Type = "region"
	TypeExported   Type = "exported"
	// TypeLane hands over a lane; its segment comes with the message.
	TypeLane Type = "lane"
	// TypeClosed says that a lane is closed for good.
	TypeClosed Type = "closed"
	// TypeSpilled brings answers that were moved out of their slots because the
	// worker did not take them: the memfd that comes with it is a spill.
	TypeSpilled Type = "spilled"
	// TypeResumed says that another core of the daemon has taken over the attachment.
	// The worker answers with TypeHave, with TypeMapped for every lane that a service
	// worker has mapped, and with every question again that has no answer.
	TypeResumed Type = "resumed"
	// TypeGone tells a service worker that a caller of a lane is gone. Workers that do not
	// know the message may ignore it.
	TypeGone Type = "gone"
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
	Methods    Methods         `json:"methods,omitempty"`
	MethodIDs  MethodIDs       `json:"method_ids,omitempty"`
	Node       string          `json:"node,omitempty"`
	RTT        int64           `json:"rtt_ns,omitempty"`
	StatusJSON json.RawMessage `json:"status,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Resumed    *Resumed        `json:"resumed,omitempty"`
	Have       *Have           `json:"have,omitempty"`
	Gone       *Gone           `json:"gone,omitempty"`
	Trace      *Trace          `json:"trace,omitempty"`
	TracedJSON json.RawMessage `json:"traced,omitempty"`
	Drain      *Drain          `json:"drain,omitempty"`

	// taken is the region of a TypeRegion that a session has received.
	taken *Region
	// lost: the descriptors that came with it could not be taken.
	lost bool
}

// Hello introduces a worker.
type Hello struct {
	Protocol int    `json:"protocol"`
	ABI      uint32 `json:"abi"`
	Role     Role   `json:"role"`
	// Name is for people: it shows up in status output.
	Name string `json:"name"`
	// Handlers is how many requests a service works on at once; 0 for unknown.
	Handlers int `json:"handlers,omitempty"`
}

// Welcome accepts a worker. For clients and services three descriptors come
// with it: the domain segment, the worker segment, and the domain's eventfd.
type Welcome struct {
	ABI    uint32 `json:"abi"`
	Node   string `json:"node"`
	Domain string `json:"domain"`
	// ID is the attach id: the owner in slot words.
	ID int `json:"id"`
	// Bytes is the most bytes of slots that the worker may hold in all its lanes
	// together; 0 for no limit.
	Bytes int `json:"bytes,omitempty"`
	// HoldMillis is for how long requests can be held up on the way, in milliseconds; see Hold.
	HoldMillis int64 `json:"hold_ms,omitempty"`
}

// Hold is for how long requests can be held up on the way because a link is lost, or a core hangs until it is replaced.
func (w *Welcome) Hold() time.Duration { return holdOf(w.HoldMillis) }

// maxHold is more than node.link_hold and node.hang_limit can make of it.
const maxHold = 4 * time.Hour

func holdOf(ms int64) time.Duration {
	return min(max(time.Duration(ms), 0), maxHold/time.Millisecond) * time.Millisecond
}

// Lane describes a lane. The lane's segment comes with the message.
type Lane struct {
	ID    uint16 `json:"id"`
	Class string `json:"class"`
	// Number tells apart the lanes of a class that lead to the same peer, or come
	// from it, from 0 on.
	Number   int            `json:"number,omitempty"`
	Peer     string         `json:"peer"`
	Geometry slots.Geometry `json:"geometry"`
	// Quota is the most slots that a client may hold in the lane; 0 for no limit.
	Quota int `json:"quota,omitempty"`
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

// Resumed is what the core that took over knows.
type Resumed struct {
	// OpsTaken is how many operations of the worker's ring the daemon has taken. Those
	// of them that have no result will get none.
	OpsTaken uint64 `json:"ops_taken"`
	// HoldMillis is as in Welcome, whose configuration may have been another; 0 from a daemon that does not say.
	HoldMillis int64 `json:"hold_ms,omitempty"`
}

// Hold is Welcome.Hold, if the message says.
func (r *Resumed) Hold() (d time.Duration, said bool) { return holdOf(r.HoldMillis), r.HoldMillis != 0 }

// Have is what a worker has, for the core that took over.
type Have struct {
	// Lanes are the ids of those that it has mapped.
	Lanes LaneIDs `json:"lanes,omitempty"`
	// Regions are those that it has, if AllRegions is set; too many are not listed.
	Regions    Regions `json:"regions,omitempty"`
	AllRegions bool    `json:"all_regions,omitempty"`
	// Asking are the numbers of its questions without an answer.
	Asking Questions `json:"asking,omitempty"`
}

// Gone says that a caller does not exist any more: nobody waits for the answers to its
// requests.
type Gone struct {
	// Caller is the attach id of the caller, as in headers.
	Caller uint16 `json:"caller"`
	// At is a time by CLOCK_MONOTONIC. What requests of the caller have made the worker
	// begin is older; what is younger is another's that has the same id.
	At int64 `json:"at"`
	// Calls are requests of the caller that the worker has begun with, by their names; see slots.AppendName.
	Calls []byte `json:"calls,omitempty"`
}

// Trace says which requests of a node's workers are to be followed. What is empty is any.
type Trace struct {
	Service string `json:"service,omitempty"`
	Method  string `json:"method,omitempty"`
	Domain  string `json:"domain,omitempty"`
	// Worker is the process id or the name of the caller.
	Worker string `json:"worker,omitempty"`
	// Every: one of so many requests is followed. Count is how many in all.
	Every int `json:"every,omitempty"`
	Count int `json:"count"`
	// TimeoutMillis is for how long to wait for them, in milliseconds.
	TimeoutMillis int64 `json:"timeout_ms"`
}

// Bounds of a Trace.
const (
	MaxTraceCount   = 10000
	MaxTraceTimeout = time.Hour
)

// Check reports whether the trace makes sense.
func (t *Trace) Check() error {
	var errs []error
	for _, name := range []string{t.Service, t.Method} {
		if name != "" {
			errs = append(errs, CheckName(name))
		}
	}
	if t.Count < 1 || t.Count > MaxTraceCount {
		errs = append(errs, fmt.Errorf("a trace of %d requests, want 1 to %d", t.Count, MaxTraceCount))
	}
	if t.Every < 0 {
		errs = append(errs, fmt.Errorf("one of %d requests", t.Every))
	}
	if t.TimeoutMillis < 1 || t.TimeoutMillis > MaxTraceTimeout.Milliseconds() {
		errs = append(errs, fmt.Errorf("a trace of %d ms, want 1 to %d", t.TimeoutMillis, MaxTraceTimeout.Milliseconds()))
	}
	return errors.Join(errs...)
}

// MaxHaveRegions is how many regions a Have lists at most.
const MaxHaveRegions = 1024

// Drain says whether a node is to be in service.
type Drain struct {
	// Resume puts the node back into service.
	Resume bool `json:"resume,omitempty"`
}

// Target names a method: Node may be empty for any node that serves it.
type Target struct {
	Node    string `json:"node,omitempty"`
	Service string `json:"service"`
	Method  string `json:"method"`
	// WaitMillis bounds how long the daemon may wait for a peer that is not
	// connected, in milliseconds; its own limit applies too.
	WaitMillis int64 `json:"wait_ms,omitempty"`
	// Avoid are nodes that a target without a node leads to only if no other
	// connected node serves it: requests to them have just failed.
	Avoid Nodes `json:"avoid,omitempty"`
}

// MaxAvoid is how many nodes a target may avoid.
const MaxAvoid = 8

// Check reports whether the names of the target's service and method are names, and
// what it avoids is at most MaxAvoid names of at most MaxNameLen bytes. Whether nodes
// exist, Node among them, only the daemon knows.
func (t *Target) Check() error {
	err := errors.Join(CheckName(t.Service), CheckName(t.Method))
	if len(t.Avoid) > MaxAvoid {
		return errors.Join(err, fmt.Errorf("%d nodes to avoid, at most %d", len(t.Avoid), MaxAvoid))
	}
	for _, node := range t.Avoid {
		err = errors.Join(err, CheckName(node))
	}
	return err
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
	// Lanes are the ids of the lanes that lead there, smallest slots first, and
	// those of a class by their numbers. Some of a class may be closed.
	Lanes LaneIDs `json:"lanes"`
	// LeastOutstanding: of the lanes of a class take the one with the fewest
	// outstanding requests; otherwise take turns.
	LeastOutstanding bool `json:"least_outstanding,omitempty"`
	// Carries: requests may have slots.FlagCarry.
	Carries bool `json:"carries,omitempty"`
}

// Method offers a method of a service.
type Method struct {
	Service string `json:"service"`
	Method  string `json:"method"`
	Answer  int    `json:"answer"`
	// Inline is no part of the message; see Core.
	Inline bool `json:"-"`
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
