package agent

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// The rigs drive agents cycle by cycle, on the test's goroutine, over ordinary
// memory: what a domain's workers and a peer can do to them, without processes.

var rigGeometry = slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4}

const (
	rigLane    = 3
	rigMethod  = 5
	rigService = 2 // the id of the service worker
)

// side is an agent with one domain.
type side struct {
	a     *Agent
	d     *Domain
	bells *slots.Bells
	dev   fabric.Device
}

func newSide(t testing.TB, dev fabric.Device) *side {
	var devs []fabric.Device
	if dev != nil {
		devs = append(devs, dev)
	}
	a, err := New("test", IdleStrategy{busy: true}, 16, devs, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Release)
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	s := &side{a: a, d: NewDomain(a, slots.NewBells(mem)), bells: slots.NewBells(mem), dev: dev}
	s.d.MethodBits = 8
	a.Domains = append(a.Domains, s.d)
	return s
}

// rigWorker is a worker's end: its id and its own view of its rings.
type rigWorker struct {
	id    int
	view  *Worker
	rings *slots.WorkerRings
	ops   *slots.OpRing
}

func (s *side) addWorker(id int) *rigWorker {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	w := &rigWorker{id: id, view: &Worker{ID: id, Rings: slots.NewWorkerRings(mem)}, rings: slots.NewWorkerRings(mem), ops: slots.NewOpRing(mem)}
	w.view.Ops = &WorkerOps{Ring: slots.NewOpRing(mem)}
	s.d.AddWorker(w.view)
	return w
}

// addService adds the service worker, with the lane mapped.
func (s *side) addService() *rigWorker {
	w := s.addWorker(rigService)
	w.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, w.view)
	return w
}

// bury ends a worker the way the conductor does.
func (s *side) bury(w *rigWorker) {
	s.d.Detach(w.view)
	s.a.cycle()
	s.d.Bury(w.view)
}

// settle runs cycles until there is nothing to do, and looks at all slots like an
// agent that is about to sleep.
func settle(sides ...*side) {
	for idle := 0; idle < 3; {
		work := 0
		for _, s := range sides {
			work += s.a.cycle()
			s.a.rescan()
		}
		if idle++; work > 0 {
			idle = 0
		}
	}
}

func newRing(t testing.TB) *slots.Ring {
	mem := shm.AlignedBytes(rigGeometry.SegmentSize())
	r, err := slots.NewRing(mem, rigGeometry)
	if err != nil {
		t.Fatal(err)
	}
	ringMemory[r] = mem
	t.Cleanup(func() { delete(ringMemory, r) })
	return r
}

// newVault makes the vault of a lane.
func newVault(t testing.TB) *vault.Vault {
	v, err := vault.New(shm.AlignedBytes(vault.Size(rigGeometry.Slots)), rigGeometry.Slots)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ringMemory has the segment of each ring that newRing has made.
var ringMemory = map[*slots.Ring][]byte{}

// localLane makes a lane from the domain to itself.
func (s *side) localLane(t testing.TB) (*OutLane, *InLane) {
	r := newRing(t)
	v := newVault(t)
	out, in := NewOutLane(s.d, rigLane, r, v, 16), NewInLane(s.d, rigLane, r, v, 16)
	out.Local, in.Local = in, out
	s.d.AddOut(out)
	s.d.AddIn(in)
	return out, in
}

// endpointOf makes the fabric side of one end of a lane.
func (s *side) endpointOf(t testing.TB, r *slots.Ring, tag uint64) *LaneEndpoint {
	p, err := NewLaneEndpoint(s.dev, s.a.CQs[0], tag, r, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// join connects two endpoints.
func join(t testing.TB, a, b *LaneEndpoint) {
	a.remote, b.remote = b.MR.Remote(), a.MR.Remote()
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = a.Endpoint.Connect(context.Background(), b.Endpoint.Address(), fabric.Active) })
	wg.Go(func() { errs[1] = b.Endpoint.Connect(context.Background(), a.Endpoint.Address(), fabric.Passive) })
	wg.Wait()
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
}

// remoteLane makes a lane between two sides over the fake fabric.
func remoteLane(t testing.TB) (a, b *side, out *OutLane, in *InLane) {
	return remoteLaneOver(t, fabrictest.NewFake())
}

// remoteLaneOver is remoteLane over a fabric whose devices reach each other.
func remoteLaneOver(t testing.TB, net fabric.Provider) (a, b *side, out *OutLane, in *InLane) {
	var sides [2]*side
	for i := range sides {
		dev, err := net.Open(fabric.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		sides[i] = newSide(t, dev)
	}
	a, b = sides[0], sides[1]
	out, in = NewOutLane(a.d, rigLane, newRing(t), newVault(t), 16), NewInLane(b.d, rigLane, newRing(t), newVault(t), 16)
	a.d.AddOut(out)
	b.d.AddIn(in)
	p, q := a.endpointOf(t, out.Ring, 1), b.endpointOf(t, in.Ring, 2)
	join(t, p, q)
	if err := in.Up(q); err != nil {
		t.Fatal(err)
	}
	if err := out.Up(p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out.Down("end of test")
		in.Down()
	})
	return a, b, out, in
}

// rigCall is a request of an honest worker.
type rigCall struct {
	w    *rigWorker
	ring *slots.Ring
	u    slots.Run
	seed byte
	post bool
}

// send claims and publishes a request of n bytes, or returns nil when there is no
// room.
func (s *side) send(w *rigWorker, r *slots.Ring, n int, post bool, seed byte) *rigCall {
	u, err := r.Claim(w.id, r.Geometry().RunFor(n))
	if err != nil {
		return nil
	}
	c := &rigCall{w: w, ring: r, u: u, seed: seed, post: post}
	for i := range r.Payload(u)[:n] {
		r.Payload(u)[i] = seed
	}
	h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Length: uint32(n), Answer: uint32(n), Kind: slots.KindRequest, Method: rigMethod, From: uint16(w.id)}
	if post {
		h.Kind = slots.KindOneWay
	}
	h.Encode(r.Header(u))
	if !r.Publish(u, w.id) {
		return nil
	}
	s.bells.MarkLane(rigLane)
	return c
}

// answered reports whether the call's answer is there, and takes it. The answer of
// a call in a slot before trusted can be anything.
func (c *rigCall) answered(t testing.TB, trusted int) bool {
	if c.post {
		return true // nothing to wait for
	}
	if !c.ring.Answered(c.u, c.w.id) {
		return false
	}
	if c.u.Index < trusted {
		c.ring.Consume(c.u)
		return true
	}
	var h slots.Header
	if !h.Decode(c.ring.Header(c.u)) || h.CheckAnswer(c.ring.Geometry(), c.u.Len, c.u.Ticket) != nil {
		t.Errorf("slot %d: a bad answer %+v", c.u.Index, h)
	}
	if h.Status == slots.StatusOK {
		for _, x := range c.ring.Payload(c.u)[:h.Length] {
			if x != c.seed+1 {
				t.Errorf("slot %d: a wrong answer", c.u.Index)
				break
			}
		}
	}
	c.ring.Consume(c.u)
	return true
}

// work lets the service worker handle up to n requests: it adds one to each byte.
func (s *side) work(w *rigWorker, r *slots.Ring, n int) {
	for range n {
		h, ok := w.rings.Down.Pop()
		if !ok {
			return
		}
		if h.Lane() != rigLane || h.Index() >= r.Geometry().Slots {
			continue
		}
		u, ok := r.Pick(h.Index(), w.id)
		if !ok {
			continue
		}
		var q slots.Header
		if !q.Decode(r.Header(u)) || u.Len > r.Geometry().MaxRun || q.CheckRequest(r.Geometry(), u.Len) != nil {
			q = slots.Header{}
		}
		for i := range r.Payload(u)[:q.Length] {
			r.Payload(u)[i]++
		}
		answer := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer, Length: q.Length}
		answer.Encode(r.Header(u))
		if r.Finish(u, w.id) {
			w.rings.Up.Push(h)
			s.bells.MarkWorker(w.id)
		}
	}
}

// check verifies that the counts of a lane's private state agree.
func (l *OutLane) check(t testing.TB) {
	t.Helper()
	taken, slotsCovered := 0, 0
	for i, e := range l.journal {
		if e.taken {
			taken++
			slotsCovered += e.word.Run()
			for j := i; j < i+e.word.Run(); j++ {
				if !l.covered[j] {
					t.Fatalf("slot %d is on its way and not covered", j)
				}
			}
		}
	}
	for _, c := range l.covered {
		if c {
			slotsCovered--
		}
	}
	if taken != l.busy || slotsCovered != 0 || len(l.deferred) > l.busy {
		t.Fatalf("out lane: %d in the journal, busy %d, deferred %d, covered wrong by %d", taken, l.busy, len(l.deferred), slotsCovered)
	}
}

func (l *InLane) check(t testing.TB) {
	t.Helper()
	active := 0
	given := map[int]int{}
	for _, r := range l.records {
		if r.active {
			active++
			given[int(r.worker)]++
		}
	}
	if active != l.Busy {
		t.Fatalf("in lane: %d records, busy %d", active, l.Busy)
	}
	for _, m := range l.domain.methods {
		if m == nil {
			continue
		}
		for _, w := range m.workers {
			if w.outstanding != given[w.ID] {
				t.Fatalf("worker %d has %d requests, outstanding %d", w.ID, given[w.ID], w.outstanding)
			}
		}
		if m.queue.len()+m.turns.n > active {
			t.Fatalf("%d requests wait of %d", m.queue.len()+m.turns.n, active)
		}
	}
}

// idle verifies that nothing is left in a lane.
func (l *OutLane) idle(t testing.TB) {
	t.Helper()
	l.check(t)
	if l.busy != 0 || len(l.deferred) != 0 {
		t.Fatalf("out lane: busy %d, deferred %d", l.busy, len(l.deferred))
	}
}

func (l *InLane) idle(t testing.TB) {
	t.Helper()
	l.check(t)
	if l.Busy != 0 || l.answers.Pending() != 0 {
		t.Fatalf("in lane: busy %d, %d answers pending", l.Busy, l.answers.Pending())
	}
}

// allFree verifies that every slot from first on is free.
func allFree(t testing.TB, r *slots.Ring, first int) {
	t.Helper()
	for i := first; i < r.Geometry().Slots; i++ {
		if w := r.Word(i); w.State() != slots.Free {
			t.Fatalf("slot %d: %v", i, w)
		}
	}
}

// script is fuzz input as a stream of decisions; zeros after its end.
type script []byte

func (s *script) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *script) n(limit int) int { return int(s.byte()) % limit }

func (s *script) word() uint64 {
	var b [8]byte
	for i := range b {
		b[i] = s.byte()
	}
	return binary.LittleEndian.Uint64(b[:])
}

// unsettled reports whether the id of a buried worker must not be used again yet.
func (d *Domain) unsettled(id int) bool {
	var ids CallerSet
	d.UnsettledIDs(&ids)
	return ids.Has(uint16(id))
}
