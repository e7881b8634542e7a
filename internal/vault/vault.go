package vault

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// entryWords and recordWords are how many 64-bit words a slot has in each part.
const (
	entryWords  = 4
	recordWords = 4
)

// laneWords is how many words the lane as a whole has: mirror, closed, and room for more.
const laneWords = 8

// Size returns the size in bytes of the vault of a lane with n slots, header page
// included.
func Size(n int) int { return shm.HeaderSize + 8*(laneWords+n*(entryWords+recordWords)) }

// Vault is a view of a vault's memory.
type Vault struct {
	// Mirror is the name of the answering end that the requests were sent to, or that
	// the records are of; 0 for none.
	Mirror *atomic.Uint64
	// Closed is not 0 while the requesting end is down, or being taken down.
	Closed *atomic.Uint64
	// Journal is what the requesting end knows, Records what the answering end does.
	Journal *Journal
	Records *Records
}

// New returns a view of mem, the whole mapping of a vault for n slots, header page
// included. Fresh memory, all zeros, is an empty vault.
func New(mem []byte, n int) (*Vault, error) {
	if len(mem) < Size(n) {
		return nil, fmt.Errorf("vault: %d bytes for %d slots, want %d", len(mem), n, Size(n))
	}
	words := shm.Uint64s(mem, shm.HeaderSize, laneWords+n*(entryWords+recordWords))
	entries, records := words[laneWords:laneWords+n*entryWords], words[laneWords+n*entryWords:]
	return &Vault{Mirror: &words[0], Closed: &words[1], Journal: &Journal{words: entries}, Records: &Records{words: records}}, nil
}

// head builds the word that makes a slot's state valid: a slot word whose state is the
// vault's.
func head(state uint8, w slots.Word) uint64 { return uint64(w.With(slots.State(state))) }

// EntryState is what became of a request that was taken from a ring.
type EntryState uint8

const (
	// EntryNone: there is none.
	EntryNone EntryState = iota
	// EntrySent: it is on its way, or about to be. The slot word is TAKEN; if it is
	// not, the daemon died before it took the request, or after it had handed the
	// answer over.
	EntrySent
	// EntryFreeing: its slots are being freed.
	EntryFreeing
	// EntryFailing: the daemon writes an error answer over it.
	EntryFailing
)

// Entry is what the journal holds of a request.
type Entry struct {
	State EntryState
	// Word is the slot word under which it was taken; its state has no meaning.
	Word slots.Word
	// Seq grows from request to request of a lane, and wraps: the order in which they
	// were first sent.
	Seq uint32
	// Answer is the largest answer that the requester takes, in bytes.
	Answer uint32
	// OneWay and Quiet: nobody waits for it; it is a message of the library's own.
	OneWay, Quiet bool
	// Status is the error of a failing one.
	Status slots.Status
}

const (
	bitOneWay = 1 << iota
	bitQuiet
	bitRefs
)

func bit(on bool, b uint64) uint64 {
	if on {
		return b
	}
	return 0
}

// Journal is the part of the requesting end. Words of a slot: head; answer and seq;
// flags; status.
type Journal struct{ words []atomic.Uint64 }

// Enter notes a request, before its slot is taken.
func (j *Journal) Enter(i int, e *Entry) {
	w := j.words[i*entryWords : (i+1)*entryWords : (i+1)*entryWords]
	shm.StoreRelease(&w[1], uint64(e.Answer)<<32|uint64(e.Seq))
	shm.StoreRelease(&w[2], bit(e.OneWay, bitOneWay)|bit(e.Quiet, bitQuiet))
	faultpoint.Here("journal.before")
	shm.StoreRelease(&w[0], head(uint8(EntrySent), e.Word))
	faultpoint.Here("journal.entered")
}

// Freeing notes that the slots of the request at i are about to be freed.
func (j *Journal) Freeing(i int) { j.become(i, EntryFreeing) }

// Failing notes that an error answer is about to be written over the request at i.
func (j *Journal) Failing(i int, s slots.Status) {
	shm.StoreRelease(&j.words[i*entryWords+3], uint64(s))
	j.become(i, EntryFailing)
}

func (j *Journal) become(i int, s EntryState) {
	w := &j.words[i*entryWords]
	shm.StoreRelease(w, head(uint8(s), slots.Word(w.Load())))
	faultpoint.Here("journal.noted")
}

// Strike takes the request at i out, when nothing is left to do for it.
func (j *Journal) Strike(i int) {
	faultpoint.Here("journal.before_strike")
	shm.StoreRelease(&j.words[i*entryWords], 0)
	faultpoint.Here("journal.struck")
}

// Load returns what is noted for slot i.
func (j *Journal) Load(i int) Entry {
	w := j.words[i*entryWords : (i+1)*entryWords : (i+1)*entryWords]
	h, a, f := slots.Word(w[0].Load()), w[1].Load(), w[2].Load()
	return Entry{
		State: EntryState(h.State()), Word: h.With(slots.Taken), Seq: uint32(a), Answer: uint32(a >> 32),
		OneWay: f&bitOneWay != 0, Quiet: f&bitQuiet != 0, Status: slots.Status(w[3].Load()),
	}
}
