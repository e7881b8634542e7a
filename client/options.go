package client

import (
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Option changes how Attach works.
type Option func(*options)

type options struct {
	name string
	wait Mode
}

// Name sets the name under which the process shows up in the daemon's status; the
// default is the program's name. The daemon shows 64 bytes of it at most, and a question
// mark for each that is not printable ASCII.
func Name(name string) Option { return func(o *options) { o.name = name } }

// CallOption changes how a Method calls; see Method.With.
type CallOption func(*callOptions)

type callOptions struct {
	answer int
	noWait bool
	// direct: nothing but what fits a run of slots. split: nothing in slots.
	direct, split bool
	// before are answer and rendezvous as they would be without Split.
	before struct{ answer, rendezvous int }
	// rendezvous is from which size on bytes go through regions.
	rendezvous int
	// limited: no message is larger than within.
	limited bool
	within  int
	// pinned: pin chooses the lane.
	pinned bool
	pin    uint64
	// ordered: key says among which requests; order is its number, else 0.
	ordered bool
	order   uint16
	key     uint64
	// carry goes with every request.
	carry []byte
	// idempotent: a request may be executed more than once.
	idempotent bool
}

// Direct makes requests and answers travel in slots only: a request or an answer that
// does not fit its run ends in ErrTooLarge. Without it a request that fits no run is
// sent in parts, and an answer that does not fit the room is fetched in parts.
func Direct() CallOption { return func(o *callOptions) { o.direct = true; o.unsplit() } }

// unsplit takes Split back.
func (o *callOptions) unsplit() {
	if o.split {
		o.split, o.answer, o.rendezvous = false, o.before.answer, o.before.rendezvous
	}
}

// Split makes every request and every answer travel through a region of this process,
// whatever their size. Slots carry only the short messages that control the transfer. It
// is for large messages that must not hold slots which others need, and for answers whose
// size nobody knows.
func Split() CallOption {
	return func(o *callOptions) {
		if !o.split {
			o.before.answer, o.before.rendezvous = o.answer, o.rendezvous
		}
		o.direct, o.split, o.rendezvous, o.answer = false, true, 0, 0
	}
}

// Rendezvous sets from which size on, in bytes, messages that fit no run of slots go
// through a region of this process instead of being cut into parts that do; the default
// is DefaultRendezvous. Without room for the region they go in parts. Nothing is copied if the
// request's bytes, or the memory for the answer, lie in a Region.
func Rendezvous(n int) CallOption {
	return func(o *callOptions) { o.rendezvous, o.before.rendezvous = max(n, 0), max(n, 0) }
}

// DefaultRendezvous is the size from which on large messages go through regions.
const DefaultRendezvous = 1 << 20

// AnswerSize sets the room to reserve for an answer in the slots of its request, in
// bytes; without it the size that the method declared is used. A larger answer is
// fetched in parts, or with Direct ends in ErrTooLarge.
func AnswerSize(n int) CallOption {
	return func(o *callOptions) { o.answer, o.before.answer = max(n, 0), max(n, 0) }
}

// NoWait makes requests fail with ErrBackpressure instead of waiting when the
// ring is full, or this process holds all that it may of it.
func NoWait() CallOption { return func(o *callOptions) { o.noWait = true } }

// MaxCarried is the most that can go with a request, in bytes.
const MaxCarried = slots.MaxCarried

// Carry makes b go with every request, beside its payload, for what is not the handler's
// business, such as the trace that the request belongs to: the handler's process finds it by
// server.Call.Carried. It must not change while the method is used. It is left out, and the
// request goes without, if the node or a process that serves the method has a version that
// does not know it, and if the request would not fit any more, or b has more than MaxCarried
// bytes. Of a large message it goes with the part that makes the handler run, of a stream with
// the one that opens it.
func Carry(b []byte) CallOption { return func(o *callOptions) { o.carry = b } }

// DefaultSocket is where Attach looks for the daemon when neither its argument
// nor the environment variable RDMAD_SOCKET names a socket.
const DefaultSocket = attach.DefaultSocket
