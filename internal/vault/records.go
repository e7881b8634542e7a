package vault

import (
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// RecordState is what became of a request that arrived.
type RecordState uint8

const (
	// RecordNone: there is none.
	RecordNone RecordState = iota
	// RecordActive: it has no answer yet. The answer word of its slot tells whether
	// the process that has it has started.
	RecordActive
	// RecordDone: its answer lies in its slots, until the requester uses them again.
	RecordDone
	// RecordFailing: the daemon writes an error answer over it.
	RecordFailing
)

// Record is what the records hold of a request.
type Record struct {
	State  RecordState
	Ticket uint64
	// Run is how many slots it has.
	Run uint16
	// Worker is the attach id of the process that has it, 0 for none; To that of the
	// process that must have it, 0 for any; From that of the requester, at its node.
	Worker, To, From uint16
	// Order and Arrival: see the fields of the header, and the order in which requests
	// with an order arrived.
	Order   uint16
	Arrival uint32
	Method  uint32
	// Answer is the largest answer that the requester takes, Length the size of the
	// answer of a done one, in bytes.
	Answer, Length uint32
	// OneWay and Refs: nobody waits for it; it refers to regions.
	OneWay, Refs bool
	// Status is the error of a failing one.
	Status slots.Status
}

// Records is the part of the answering end. Words of a slot: head, with the worker as
// owner; method and answer; flags, status, order, to and from; arrival and length. A
// failing request becomes a done one, so status and length are in different words.
type Records struct{ words []atomic.Uint64 }

// Accept notes a request that has arrived at slot i.
func (r *Records) Accept(i int, c *Record) {
	w := r.words[i*recordWords : (i+1)*recordWords : (i+1)*recordWords]
	shm.StoreRelease(&w[0], 0) // what follows is not of the request before it
	shm.StoreRelease(&w[1], uint64(c.Method)<<32|uint64(c.Answer))
	shm.StoreRelease(&w[2], uint64(c.From)<<48|uint64(c.To)<<32|uint64(c.Order)<<16|bit(c.OneWay, bitOneWay)|bit(c.Refs, bitRefs))
	shm.StoreRelease(&w[3], uint64(c.Arrival)<<32)
	faultpoint.Here("record.before")
	shm.StoreRelease(&w[0], uint64(slots.MakeWord(slots.State(RecordActive), int(c.Run), 0, c.Ticket)))
	faultpoint.Here("record.accepted")
}

// Assign notes that a process has the request at i, 0 for none.
func (r *Records) Assign(i int, worker uint16) {
	w := &r.words[i*recordWords]
	h := slots.Word(w.Load())
	shm.StoreRelease(w, uint64(slots.MakeWord(h.State(), h.Run(), int(worker), h.Ticket())))
	faultpoint.Here("record.assigned")
}

// Done notes that the answer of the request at i lies in its slots, length bytes.
func (r *Records) Done(i int, length uint32) {
	w := &r.words[i*recordWords+3]
	shm.StoreRelease(w, w.Load()&^(1<<32-1)|uint64(length))
	r.become(i, RecordDone)
}

// Failing notes that an error answer is about to be written over the request at i.
func (r *Records) Failing(i int, s slots.Status) {
	w := &r.words[i*recordWords+2]
	shm.StoreRelease(w, w.Load()&^(statusMask<<statusShift)|uint64(s)&statusMask<<statusShift)
	r.become(i, RecordFailing)
}

// The status of a failing request is in the word of the flags.
const (
	statusShift = 8
	statusMask  = 0xff
)

func (r *Records) become(i int, s RecordState) {
	w := &r.words[i*recordWords]
	faultpoint.Here("record.before_end")
	shm.StoreRelease(w, uint64(slots.Word(w.Load()).With(slots.State(s))))
	faultpoint.Here("record.ended")
}

// Forget takes everything out: the requester is not to ask again.
func (r *Records) Forget() {
	for i := 0; i < len(r.words); i += recordWords {
		shm.StoreRelease(&r.words[i], 0)
	}
}

// Load returns what is noted for slot i.
func (r *Records) Load(i int) Record {
	w := r.words[i*recordWords : (i+1)*recordWords : (i+1)*recordWords]
	h, a, f, l := slots.Word(w[0].Load()), w[1].Load(), w[2].Load(), w[3].Load()
	c := Record{
		State: RecordState(h.State()), Ticket: h.Ticket(), Run: uint16(h.Run()), Worker: uint16(h.Owner()),
		Method: uint32(a >> 32), Answer: uint32(a), From: uint16(f >> 48), To: uint16(f >> 32), Order: uint16(f >> 16),
		OneWay: f&bitOneWay != 0, Refs: f&bitRefs != 0, Arrival: uint32(l >> 32),
	}
	if c.State == RecordFailing {
		c.Status = slots.Status(f >> statusShift & statusMask)
	} else {
		c.Length = uint32(l)
	}
	return c
}
