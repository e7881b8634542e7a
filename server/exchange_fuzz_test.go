package server

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	fuzzLane   = 3
	fuzzMethod = 5
	fuzzID     = 2
)

// exchangeRig is a server without a daemon: the test delivers requests to it.
type exchangeRig struct {
	t    *testing.T
	s    *Server
	ring *mapped
	// given are the requests that have no answer yet, by slot.
	given map[int]slots.Run
	ids   []uint64
}

func newExchangeRig(t *testing.T) *exchangeRig {
	g := slots.Geometry{SlotSize: 512, Slots: 64, MaxRun: 4}
	ring, err := slots.NewRing(shm.AlignedBytes(g.SegmentSize()), g)
	if err != nil {
		t.Fatal(err)
	}
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bell.Close() })
	s := &Server{workers: 1, id: fuzzID, over: make(chan struct{})}
	s.base, s.stop = context.WithCancel(context.Background())
	s.session = &attach.Session{
		Rings: slots.NewWorkerRings(shm.AlignedBytes(slots.WorkerSegmentSize)),
		Bells: slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize)), Bell: bell,
	}
	s.handlers.Store(&map[uint32]handlers{fuzzMethod: {call: fuzzCall, stream: fuzzStream}})
	s.pool.init(s)
	s.exchanges.init(s, &options{large: attach.BlockFrom - 1, streams: 4}) // no daemon makes blocks
	lane := &mapped{Ring: ring}
	s.lanes[fuzzLane].Store(lane)
	return &exchangeRig{t: t, s: s, ring: lane, given: map[int]slots.Run{}}
}

// fuzzCall answers with its request, and with more than fits if that begins with a 1.
func fuzzCall(c *Call) error {
	if req := c.Request(); len(req) > 0 && req[0] == 1 {
		c.Answer(5000)
		return nil
	}
	return c.Reply(c.Request())
}

func fuzzStream(s *Stream) error {
	for {
		msg, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.Send(msg)
		}
		if err != nil {
			return err
		}
	}
}

// send delivers a part to the server and looks at the answer, if it is there at once.
func (r *exchangeRig) send(slot int, oneway bool, p exchange.PartRequest, data []byte) {
	if _, busy := r.given[slot]; busy {
		r.settle()
		if _, busy := r.given[slot]; busy {
			return
		}
	}
	u := slots.Run{Index: slot, Len: 1, Ticket: r.ring.AnswerWord(slot).Ticket() + 1}
	h := slots.Header{
		Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Flags: slots.FlagPart, Method: fuzzMethod,
		Length: uint32(exchange.PartSize + len(data)), Answer: 300,
	}
	if oneway {
		h.Kind = slots.KindOneWay
	}
	h.Encode(r.ring.Header(u))
	p.Encode(r.ring.Payload(u))
	copy(r.ring.Payload(u)[exchange.PartSize:], data)
	r.ring.Deliver(slot, 1, fuzzID, u.Ticket)
	r.given[slot] = u
	r.s.pool.serve(&Call{server: r.s, batch: &batch{}}, slots.MakeHint(fuzzLane, slot, u.Ticket))
	r.settle()
}

// settle takes the answers that are there.
func (r *exchangeRig) settle() {
	for slot, u := range r.given {
		if r.ring.AnswerWord(slot) != slots.MakeWord(slots.Done, 1, fuzzID, u.Ticket) {
			continue
		}
		delete(r.given, slot)
		var h slots.Header
		if !h.Decode(r.ring.Header(u)) {
			r.t.Fatalf("slot %d: a damaged answer", slot)
		}
		if err := h.CheckAnswer(r.ring.Geometry(), 1, u.Ticket); err != nil {
			r.t.Fatalf("slot %d: %v", slot, err)
		}
		var a exchange.PartAnswer
		if h.Flags&slots.FlagPart == 0 {
			continue
		}
		if _, _, err := a.Decode(r.ring.Payload(u)[:h.Length]); err != nil {
			r.t.Fatalf("slot %d: %v", slot, err)
		}
		if a.Kind == exchange.KindOpened || a.Kind == exchange.KindMore {
			r.ids = append(r.ids, a.ID)
		}
	}
}

// Whatever parts come, in whatever order: no panic, every request is answered, at the
// latest when the server closes, and nothing of an exchange is left.
func FuzzExchanges(f *testing.F) {
	part := func(op exchange.Op, which, flags byte, offset, credit uint32, n byte) []byte {
		b := []byte{byte(op), which, flags, n}
		b = binary.LittleEndian.AppendUint32(b, offset)
		return binary.LittleEndian.AppendUint32(b, credit)
	}
	join := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	f.Add(join(part(exchange.OpOpenCall, 0, 0, 0, 100, 60), part(exchange.OpPush, 1, 0, 60, 0, 40), part(exchange.OpRun, 1, 0, 0, 0, 0), part(exchange.OpPull, 2, 0, 200, 0, 100)))
	f.Add(join(part(exchange.OpOpenStream, 0, 0, 0, 1000, 9), part(exchange.OpWait, 1, 0, 0, 5000, 0), part(exchange.OpSend, 1, 1, 9, 5000, 0), part(exchange.OpWait, 1, 0, 0, 5000, 0)))
	f.Add(join(part(exchange.OpOpenStream, 0, 0, 0, 0, 0), part(exchange.OpWait, 1, 0, 0, 0, 0), part(exchange.OpWait, 1, 0, 0, 9, 0), part(exchange.OpClose, 1, 0, 0, 0, 0), part(exchange.OpSend, 1, 0, 0, 0, 4)))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := newExchangeRig(t)
		late := time.AfterFunc(4*time.Minute, func() { panic("hangs") }) // shows all goroutines
		defer late.Stop()
		for n := 0; len(in) >= 12 && n < 200; n++ {
			op, which, flags, size := in[0], in[1], in[2], in[3]
			p := exchange.PartRequest{
				Op: exchange.Op(op % 10), Flags: exchange.PartFlags(flags), Length: uint32(size),
				Offset: uint64(binary.LittleEndian.Uint32(in[4:])), Credit: uint64(binary.LittleEndian.Uint32(in[8:])),
			}
			in = in[12:]
			if k := len(r.ids); which > 0 && k > 0 {
				p.ID = r.ids[int(which)%k]
			}
			data := make([]byte, int(size)%256)
			if len(data) > 4 {
				exchange.PutFrame(data, len(data)-4)
				data[4] = which & 1
			}
			if p.Op == exchange.OpPull {
				data = nil
			}
			r.send(n%64, p.Op == exchange.OpClose, p, data)
		}
		r.s.stop()
		r.s.exchanges.shut()
		r.settle()
		if len(r.given) > 0 {
			t.Errorf("%d requests have no answer", len(r.given))
		}
		x := &r.s.exchanges
		if len(x.open) != 0 || x.streams != 0 {
			t.Errorf("%d exchanges are left, %d handlers", len(x.open), x.streams)
		}
	})
}
