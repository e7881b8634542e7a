package daemon

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// ordererMethod is the method of requests of an order.
const ordererMethod = 5

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
		Ticket: u.Ticket, Run: 1, Answer: 8, Kind: slots.KindRequest, Method: ordererMethod,
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
		a.Commands.Call(func() { a.Domains = nil })
		info.close()
	})
	left := []leftover[laneMeta]{rig.leave(t, info, laneLocal)}

	// The last core has taken five requests. It dies, and with it the process 2 of the service.
	last := rig.before.view
	out, in := agent.NewOutLane(last, info.ID, ring, v, 16), agent.NewInLane(last, info.ID, ring, v, 16)
	out.Local, in.Local = in, out
	process := func(id int, mem []byte) *agent.Worker {
		return &agent.Worker{ID: id, Rings: slots.NewWorkerRings(mem)}
	}
	old := process(2, shm.AlignedBytes(slots.WorkerSegmentSize))
	old.Mapped[info.ID/64] |= 1 << (info.ID % 64)
	a.Commands.Call(func() {
		a.Domains = append(a.Domains, last)
		last.AddOut(out)
		last.AddIn(in)
		last.AddWorker(process(1, shm.AlignedBytes(slots.WorkerSegmentSize)))
		last.AddWorker(old)
		last.Register(ordererMethod, old)
	})
	o := &orderer{ring: ring, lane: info.ID, place: map[int]int{}}
	const taken = 5
	for range taken {
		o.publish(slots.NewBells(rig.before.seg.Bytes()))
	}
	eventually(t, "the last core takes the requests", func() error {
		a.Commands.Call(func() {}) // a cycle looks at what is marked
		for i := range o.place {
			if st := ring.Word(i).State(); st == slots.Pub || st == slots.Free {
				return fmt.Errorf("slot %d: %v", i, st)
			}
		}
		return nil
	})
	a.Commands.Call(func() { a.Domains = nil })
	bells := slots.NewBells(d.seg.Bytes())
	for range 3 {
		o.publish(bells)
	}

	// The next one adopts the caller and process 3 of the service, which has not said yet which
	// lanes it has.
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	service, caller := process(3, mem), process(1, shm.AlignedBytes(slots.WorkerSegmentSize))
	service.Stale, caller.Stale = true, true
	a.Commands.Call(func() {
		a.Domains = append(a.Domains, d.view)
		d.view.AddWorker(caller)
		d.view.AddWorker(service)
		d.view.Register(ordererMethod, service)
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
	a.Commands.Call(func() { d.view.Maps(service, info.ID) })
	var got []int
	rings := slots.NewWorkerRings(mem)
	for looks := 0; len(got) < o.n && looks < 1000; looks++ {
		a.Commands.Call(func() {}) // a cycle ends with hints
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
