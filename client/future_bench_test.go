package client

import (
	"context"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// solo is a connection over ordinary memory: the benchmark, or the test, is the daemon, too.
type solo struct {
	conn   *Conn
	lane   *lane
	method *Method
	// down is the daemon's end of the hints.
	down *slots.HintRing
}

func newSolo(b testing.TB) *solo {
	b.Helper()
	const id, laneID = 3, 1
	geometry := slots.Geometry{SlotSize: 128, Slots: 4096, MaxRun: 32}
	ring, err := slots.NewRing(shm.AlignedBytes(geometry.SegmentSize()), geometry)
	if err != nil {
		b.Fatal(err)
	}
	rings := shm.AlignedBytes(slots.WorkerSegmentSize)
	c := &Conn{id: id, over: make(chan struct{}), session: &attach.Session{
		Bells: slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize)), Rings: slots.NewWorkerRings(rings),
	}}
	c.life, c.endLife = context.WithCancel(b.Context())
	c.wait.conn = c
	c.addLane(attach.Lane{ID: laneID, Geometry: geometry}, ring)
	l := c.lanes[laneID].Load()
	m := &Method{conn: c, name: "b/t/echo", opts: callOptions{answer: -1, rendezvous: DefaultRendezvous}, route: &routeCell{asking: make(chan struct{}, 1)}}
	s := &laneSet{lanes: []*lane{l}, geo: geometry, single: l.single}
	m.route.p.Store(&route{sets: []*laneSet{s}, widest: s, largest: geometry.MaxPayload()})
	return &solo{conn: c, lane: l, method: m, down: &slots.NewWorkerRings(rings).Down}
}

// send starts a request of size bytes whose answer goes into dst, as start does when it
// has found the lane.
func (s *solo) send(b *testing.B, req, dst []byte) *Future {
	u, err := s.lane.ring.Claim(s.conn.id, s.lane.ring.Geometry().RunFor(len(req)))
	if err != nil {
		b.Fatal(err)
	}
	d := draft{l: s.lane, u: u, h: slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Length: uint32(len(req))}}
	f, err := s.method.commit(&d, req, &sink{dst: dst})
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// answer answers a request as the daemon does, with the bytes of the request.
func (s *solo) answer(b *testing.B, f *Future) {
	r, u := s.lane.ring, f.run
	if !r.Take(u.Index, r.Word(u.Index)) {
		b.Fatal("not taken")
	}
	var h slots.Header
	if !h.Decode(r.Header(u)) {
		b.Fatal("no header")
	}
	h = slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Length: h.Length, Kind: slots.KindAnswer}
	h.Encode(r.Header(u))
	if !r.Answer(u.Index, r.Word(u.Index)) || !s.down.Stage(slots.MakeHint(s.lane.id, u.Index, u.Ticket)) {
		b.Fatal("not answered")
	}
}

// BenchmarkFutures is a batch of requests and their futures' way to their outcomes within
// one goroutine, with the daemon's swaps between: what the library costs without wake-ups
// and other processes. The first wait of a batch takes in all of its answers.
func BenchmarkFutures(b *testing.B) {
	for _, c := range []struct {
		name    string
		n, size int
	}{{"1x64", 1, 64}, {"64x64", 64, 64}, {"1x2048", 1, 2048}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			s, ctx := newSolo(b), context.Background()
			req, dst, fs := make([]byte, c.size), make([]byte, c.size), make([]*Future, c.n)
			for b.Loop() {
				for i := range fs {
					fs[i] = s.send(b, req, dst)
				}
				for _, f := range fs {
					s.answer(b, f)
				}
				s.down.Publish()
				for _, f := range fs {
					if answer, err := f.Wait(ctx); err != nil || len(answer) != c.size {
						b.Fatal(len(answer), err)
					}
					f.Release()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/message")
		})
	}
}

// BenchmarkFutureOutcome is what it costs to give a future its outcome: alone, and with a
// channel that somebody may wait for.
func BenchmarkFutureOutcome(b *testing.B) {
	for _, shared := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "channel"}[shared], func(b *testing.B) {
			b.ReportAllocs()
			s := newSolo(b)
			d := draft{l: s.lane}
			for b.Loop() {
				f := futures.Get().(*Future)
				f.reset(s.method, &d, &sink{})
				if shared {
					f.channel()
				}
				f.complete(nil, nil)
				if !f.settled() {
					b.Fatal("no outcome")
				}
				f.Release()
			}
		})
	}
}
