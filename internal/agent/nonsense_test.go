package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// smallClass is the default class small.
var smallClass = slots.Geometry{SlotSize: 128, Slots: 8192, MaxRun: 64}

// smallRing makes a ring of that class in memory that the test may write to, and its vault.
func smallRing(t *testing.T) (*slots.Ring, *vault.Vault, []byte) {
	t.Helper()
	mem := shm.AlignedBytes(smallClass.SegmentSize())
	r, err := slots.NewRing(mem, smallClass)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.New(shm.AlignedBytes(vault.Size(smallClass.Slots)), smallClass.Slots)
	if err != nil {
		t.Fatal(err)
	}
	return r, v, mem
}

// Words that make no sense are no reason to stay awake: once they were looked at, an agent whose workers do nothing sleeps.
func TestNonsenseLetsTheAgentSleep(t *testing.T) {
	s := newSide(t, nil)
	r, v, mem := smallRing(t)
	out, in := NewOutLane(s.d, rigLane, r, v, 16), NewInLane(s.d, rigLane, r, v, 16)
	out.Local, in.Local = in, out
	s.d.AddOut(out)
	s.d.AddIn(in)
	s.addWorker(1)
	bad := s.addWorker(4)
	// One of them has written this, and is dead; there is no process 9.
	const words = 100
	for i := range words {
		shm.Uint64At(mem, offWords+8*i).Store(uint64(slots.MakeWord(slots.Pub, 0, 9, uint64(i))))
	}
	s.bells.MarkLane(rigLane)
	sleeps := func() bool {
		for range 10000 {
			if s.a.cycle() == 0 {
				return !s.a.rescan() // what comes before every sleep
			}
		}
		return false
	}
	sleeps()
	s.bury(bad)
	slept := 0
	for range 100 {
		if sleeps() {
			slept++
		}
	}
	if slept == 0 {
		t.Error("of 100 times the agent would not have slept once")
	}
	if n := s.a.Count.ProtocolErrors; n != words {
		t.Errorf("%d errors are counted, want one for each of the %d words", n, words)
	}
}

// The ids that are in use are found by one look at each slot, whatever workers have written.
func TestUnsettledIDsWhateverIsWritten(t *testing.T) {
	s := newSide(t, nil)
	const lanes = 8
	var last []byte
	for lane := range lanes {
		r, v, mem := smallRing(t)
		s.d.AddOut(NewOutLane(s.d, uint16(lane), r, v, 16))
		last = mem
	}
	for i := range slots.MaxOwner {
		shm.Uint64At(last, offWords+8*(smallClass.Slots-1-i)).Store(uint64(slots.MakeWord(slots.Pub, 1, i+1, 1)))
	}
	var ids CallerSet
	s.d.UnsettledIDs(&ids)
	if n := len(ids.all()); n != slots.MaxOwner {
		t.Errorf("%d ids are in use, want %d", n, slots.MaxOwner)
	}
}

// What a process has written in whatever name is held against nobody else when it has died, and takes no slots and no ids: what is
// in the name of nobody who is there is free at once, the rest when they have died, too.
func TestWordsOutliveTheirWriter(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		s := newSide(t, nil)
		k := s.judged(5, 0)
		r, v, mem := smallRing(t)
		out := NewOutLane(s.d, rigLane, r, v, 16)
		s.d.AddOut(out)
		vandal := s.addWorker(7)
		write := func(i int, state slots.State, run, owner int) {
			shm.Uint64At(mem, offWords+8*i).Store(uint64(slots.MakeWord(state, run, owner, uint64(i))))
		}
		for i := range 300 {
			write(6*i, slots.Pub, 0, i)
			write(6*i+1, slots.Pub, 2, 300+i)
			write(6*i+2, slots.Claim, 1, 600+i)
			write(6*i+3, slots.Follow, 1, 900+i)
			write(6*i+4, slots.Ans, 1, 1200+i)
			write(6*i+5, slots.Taken, 1, 1500+i)
		}
		const framed = 20 // in the name of who stays
		for i := range framed {
			write(2000+i, slots.Pub, 0, 8)
		}
		if !adopted {
			s.addWorker(8)
			s.bury(vandal)
		} else { // by a core that does not know of the dead one
			s = newSide(t, nil)
			k = s.judged(5, 0)
			out = NewOutLane(s.d, rigLane, r, v, 16)
			s.d.AddOut(out)
			s.d.AddWorker(&Worker{ID: 8, Stale: true, Rings: slots.NewWorkerRings(shm.AlignedBytes(slots.WorkerSegmentSize))})
		}
		out.Plan.Rescan()
		for range 20 {
			s.bells.MarkLane(rigLane)
			s.a.cycle()
		}
		if len(k.out) > 0 || s.d.Workers[8].offences.Total > 0 {
			t.Errorf("adopted %v: %d offences are held against who has done nothing", adopted, s.d.Workers[8].offences.Total)
		}
		busy := func() (n int) {
			for i := range smallClass.Slots {
				if r.Word(i).State() != slots.Free {
					n++
				}
			}
			return n
		}
		if n := busy(); !adopted && n != framed+1 { // and one that the first loop has made in the same name
			t.Errorf("%d slots are in use, want %d", n, framed+1)
		}
		var ids CallerSet
		s.d.UnsettledIDs(&ids)
		if n := len(ids.all()); n > 0 {
			t.Errorf("adopted %v: %d ids are in use", adopted, n)
		}
		s.bury(&rigWorker{id: 8, view: s.d.Workers[8]})
		if n := busy(); n > 0 {
			t.Errorf("adopted %v: %d slots are in use in the end", adopted, n)
		}
	}
}
