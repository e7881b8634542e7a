package daemon

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// orderer publishes requests of one order in a ring.
type orderer struct {
	ring  *slots.Ring
	lane  uint16
	last  slots.Run
	n     int
	place map[int]int // of the request in each slot
}

// publish reports whether there was room.
func (o *orderer) publish(b *slots.Bells) bool {
	u, err := o.ring.Claim(1, 1)
	if err != nil {
		return false
	}
	after := o.last
	if after.Len == 0 {
		after = u
	}
	h := slots.Header{
		Ticket: u.Ticket, Run: 1, Answer: 8, Kind: slots.KindRequest, Method: rigMethod,
		Order: 77, After: uint16(after.Index), AfterTicket: uint32(after.Ticket),
	}
	h.Encode(o.ring.Header(u))
	if !o.ring.Publish(u, 1) {
		return false
	}
	o.last, o.place[u.Index] = u, o.n
	o.n++
	b.MarkLane(o.lane)
	return true
}

// A core that takes over a local lane starts on the requests of an order in the order they were
// sent in: those that the last core had taken before those that are published meanwhile.
func TestOrderedRequestsWhileALaneIsAdopted(t *testing.T) {
	class := config.Class{Name: "c", SlotSize: 128, Slots: 4096, MaxRun: 4}
	rig := newAdoption(t, &config.Config{Classes: []config.Class{class}, Limits: config.Limits{WorkerSlots: 100}})
	a, d := rig.agent, rig.next
	info, ring, v, err := rig.before.newLane("a", class, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.commands.call(func() { a.domains = nil })
		info.close()
	})
	left := []leftover[laneMeta]{rig.leave(t, info, laneLocal)}

	// The last core, cycle by cycle. It dies, and with it the process 2 of the service.
	s := newSide(t, nil)
	s.d.methodBits = 0
	out, in := newOutLane(s.d, info.ID, ring, v, 16), newInLane(s.d, info.ID, ring, v, 16)
	out.local, in.local = in, out
	s.d.addOut(out)
	s.d.addIn(in)
	s.addWorker(1)
	old := s.addWorker(2)
	old.view.mapped[info.ID/64] |= 1 << (info.ID % 64)
	s.d.register(rigMethod, old.view)
	o := &orderer{ring: ring, lane: info.ID, place: map[int]int{}}
	for range 5 {
		o.publish(s.bells)
	}
	settle(s)
	bells := slots.NewBells(d.seg.Bytes())
	for range 3 {
		o.publish(bells)
	}

	// The next one adopts the caller and process 3 of the service, which has not said yet which
	// lanes it has.
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	service := &agentWorker{id: 3, stale: true, rings: slots.NewWorkerRings(mem)}
	caller := &agentWorker{id: 1, stale: true, rings: slots.NewWorkerRings(shm.AlignedBytes(slots.WorkerSegmentSize))}
	a.commands.call(func() {
		a.domains = append(a.domains, d.view)
		d.view.addWorker(caller)
		d.view.addWorker(service)
		d.view.register(rigMethod, service)
	})
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() { // the caller lives on, and knows of nothing
		for o.n < 256 && o.publish(bells) {
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	d.adoptLanes(left)
	close(stop)
	publishing.Wait()
	a.commands.call(func() {
		a.rescan()
		service.mapped[info.ID/64] |= 1 << (info.ID % 64)
		d.view.drainQueues()
	})
	var got []int
	rings := slots.NewWorkerRings(mem)
	for looks := 0; len(got) < o.n && looks < 1000; looks++ {
		a.commands.call(func() {}) // a cycle ends with hints
		for {
			h, ok := rings.Down.Pop()
			if !ok {
				break
			}
			if _, ok := ring.Pick(h.Index(), 3); ok {
				got = append(got, o.place[h.Index()])
			}
		}
	}
	if len(got) != o.n || !slices.IsSorted(got) {
		t.Errorf("%d requests of %d were started, in the order %v", len(got), o.n, got)
	}
}

// What the last core had taken and not handed to its other side arrives as it was sent, wherever
// in the ring it is.
func TestRejoinKeepsTheOrder(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller := s.addWorker(1)
	o := &orderer{ring: out.ring, lane: rigLane, place: map[int]int{}}
	for range 5 {
		o.publish(s.bells)
	}
	for i := range 5 {
		w := out.ring.Word(i)
		if !out.ring.Take(i, w) {
			t.Fatal("not taken")
		}
		// The later ones are in front, as in a ring that begins again.
		out.enter(i, &entry{word: w, answer: 8})
		out.kept.Enter(i, &vault.Entry{Word: w, Seq: uint32((i + 3) % 5), Answer: 8})
	}
	_, _, next := s.successor(t, out, in, caller)
	var got []int
	for i := range 5 {
		got = append(got, int(next.records[i].arrival))
	}
	if want := []int{4, 5, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("arrived as %v, want %v", got, want)
	}
}
