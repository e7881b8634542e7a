package agent

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Offsets in a lane segment; see docs/layout.md.
const (
	offCursor = shm.HeaderSize
	offLate   = shm.HeaderSize + 0x200
	offWords  = shm.HeaderSize + 0x1000
)

// zone is how many slots, from the first on, the hostile worker writes to. Calls
// in them may end in any way; all others must end well.
const zone = 24

// vandal is a worker that writes anything anywhere in what its domain shares.
type vandal struct {
	mem  []byte // of the lane's segment
	ring *slots.Ring
	s    *side
	own  *rigWorker
}

// act does one bad thing.
func (v *vandal) act(in *script) {
	n := v.ring.Geometry().Slots
	i := in.n(zone)
	switch in.n(9) {
	case 0: // any word
		shm.Uint64At(v.mem, offWords+8*i).Store(in.word())
	case 1: // a word that is nearly right
		shm.Uint64At(v.mem, offWords+8*i).Store(uint64(slots.MakeWord(slots.State(in.n(8)), in.n(6), in.n(6), v.ring.Word(i).Ticket()+uint64(in.n(3))-1)))
	case 2: // an answer word
		shm.Uint64At(v.mem, offWords+8*n+8*i).Store(in.word())
	case 3:
		w := v.ring.AnswerWord(i)
		shm.Uint64At(v.mem, offWords+8*n+8*i).Store(uint64(slots.MakeWord(slots.State(in.n(8)), in.n(6), in.n(6), w.Ticket()+uint64(in.n(3))-1)))
	case 4: // a byte of a header
		v.ring.HeaderAt(i)[in.n(slots.HeaderSize)] = in.byte()
	case 5:
		shm.Uint64At(v.mem, offCursor).Store(in.word())
	case 6:
		shm.Uint64At(v.mem, offLate).Store(in.word())
	case 7: // hints of requests it never had
		v.own.rings.Up.Push(slots.Hint(in.word()))
		v.own.rings.Up.Push(slots.MakeHint(rigLane, i, uint64(in.byte())))
		v.s.bells.MarkWorker(v.own.id)
	case 8: // bells for nothing
		v.s.bells.MarkLane(uint16(in.word()))
		v.s.bells.MarkWorker(int(in.byte()))
	}
}

// play lets honest workers and a vandal act as the script says. It reports on t if
// an honest request outside the vandal's zone does not end, or if anything is left
// when all workers are gone.
func play(t *testing.T, in script, remote bool) {
	var a, b *side
	var out *OutLane
	var inl *InLane
	if remote {
		a, b, out, inl = remoteLane(t)
	} else {
		a = newSide(t, nil)
		b = a
		out, inl = a.localLane(t)
	}
	service := b.addService()
	honest := []*rigWorker{a.addWorker(11), a.addWorker(12)}
	bad := a.addWorker(4)
	v := &vandal{mem: ringMemory[out.Ring], ring: out.Ring, s: a, own: bad}
	open := map[*rigCall]bool{}
	step := 0
	for len(in) > 0 && step < 2000 {
		step++
		switch in.n(8) {
		case 0, 1:
			if c := a.send(honest[step%2], out.Ring, in.n(200), in.n(8) == 0, byte(step)); c != nil {
				open[c] = true
			}
		case 2, 3:
			v.act(&in)
		case 4:
			b.work(service, inl.Ring, 1+in.n(8))
		case 5:
			for c := range open {
				if c.answered(t, zone) {
					delete(open, c)
				}
			}
		default:
			a.a.cycle()
			if remote {
				b.a.cycle()
			}
			out.check(t)
			inl.check(t)
		}
		if remote && (out.End == nil || inl.End == nil) {
			break // the peer has seen a damaged header: that lane is over
		}
	}
	for range 20 {
		settle(a, b)
		b.work(service, inl.Ring, 1000)
		for c := range open {
			if c.answered(t, zone) {
				delete(open, c)
			}
		}
	}
	for c := range open {
		if c.u.Index >= zone && !remote {
			t.Fatalf("an honest request in slot %d did not end: %v, answer word %v", c.u.Index, c.ring.Word(c.u.Index), c.ring.AnswerWord(c.u.Index))
		}
	}
	b.bury(service)
	for _, w := range append(honest, bad) {
		a.bury(w)
	}
	settle(a, b)
	if remote {
		// Nobody answers what was lost with a broken lane.
		out.Down("end of test")
		inl.Down()
		settle(a, b)
	}
	out.idle(t)
	inl.idle(t)
	allFree(t, out.Ring, zone+rigGeometry.MaxRun)
}

func FuzzScribble(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		data := make([]byte, 3000)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data, false)
	}
	for range 10 {
		data := make([]byte, 1500)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, remote bool) { play(t, data, remote) })
}

// The hostile peer answers: anything in the slots, any immediate, at any time.
func FuzzOutLaneAnswers(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		data := make([]byte, 1200)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := script(data)
		a, b, out, _ := remoteLane(t)
		w := a.addWorker(11)
		var calls []*rigCall
		for step := 0; len(in) > 0 && out.End != nil && step < 2000; step++ {
			switch in.n(6) {
			case 0:
				if c := a.send(w, out.Ring, in.n(200), in.n(6) == 0, 1); c != nil {
					calls = append(calls, c)
				}
			case 1: // what an honest peer would answer, once or twice
				i := out.nextTaken(in.n(rigGeometry.Slots))
				e := out.journal[i]
				h := slots.Header{Ticket: e.word.Ticket(), Run: uint16(e.word.Run()), Kind: slots.KindAnswer}
				if !e.taken {
					continue
				}
				h.Encode(out.Ring.HeaderAt(i))
				for range 1 + in.n(4)/3 {
					if out.End != nil {
						out.immediate(uint32(i)<<8 | 1)
					}
				}
			case 2: // and one with a byte changed
				out.Ring.HeaderAt(in.n(rigGeometry.Slots))[in.n(slots.HeaderSize)] = in.byte()
			case 3:
				out.immediate(uint32(groupsend.Imm(uint32(in.n(rigGeometry.Slots))<<8 | uint32(in.n(4)))))
			case 4:
				if in.n(16) == 0 {
					out.immediate(uint32(in.word()))
				}
			case 5:
				a.a.cycle()
				if in.n(2) == 0 {
					b.a.cycle() // takes receives, so that sends complete
				}
			}
			out.check(t)
		}
		out.Down("end of run")
		out.idle(t)
		for _, c := range calls {
			c.answered(t, rigGeometry.Slots)
		}
		a.bury(w)
		out.idle(t)
		allFree(t, out.Ring, 0)
	})
}

// nextTaken returns the first slot from i on whose request is in the journal.
func (l *OutLane) nextTaken(i int) int {
	for k := range l.journal {
		if j := (i + k) % len(l.journal); l.journal[j].taken {
			return j
		}
	}
	return i
}

// A peer that uses a slot again before it has the answer breaks the protocol, also where a tool follows what it sends: groups of answers are
// of what was there before.
func TestRequestOverAnswerThatIsNotSent(t *testing.T) {
	for _, second := range []int{0, 1} { // over the first of two answers, or over the second alone
		_, b, _, l := remoteLane(t)
		b.d.Tracer = NewTracer(b.d)
		b.addService()
		at := rigGeometry.Slots - 2
		request := func(i, run int, ticket uint64, method uint32) {
			h := slots.Header{Ticket: ticket, Run: uint16(run), Kind: slots.KindRequest, Method: method, Answer: 8}
			if run > 1 {
				h.Length = uint32(rigGeometry.SlotSize)
			}
			h.Encode(l.Ring.HeaderAt(i))
			l.immediate(uint32(i)<<8 | 1)
		}
		const nobodys = rigMethod + 1
		request(at, 1, 1, nobodys)
		request(at+1, 1, 2, nobodys)
		if n := l.answers.Pending(); n != 2 || l.End == nil {
			t.Fatalf("%d answers wait", n)
		}
		request(at+second, 2-second, 3, rigMethod)
		if l.End != nil {
			t.Errorf("the lane is up after a request over the answer in slot %d", at+second)
		}
		b.a.cycle()
	}
}

// The hostile peer requests.
func FuzzInLaneRequests(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		data := make([]byte, 1500)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	// Empty groups, more of them than receives were ever posted.
	f.Add(bytes.Repeat([]byte{2, 0, 0}, recvDepth+1))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := script(data)
		a, b, _, l := remoteLane(t)
		b.d.Tracer = NewTracer(b.d)
		service := b.addService()
		ticket := uint64(0)
		for step := 0; len(in) > 0 && l.End != nil && step < 2000; step++ {
			switch in.n(8) {
			case 7: // a process that has the lane, and then not: requests have to wait
				service.view.Mapped[rigLane/64] ^= 1 << (rigLane % 64)
				b.d.DrainQueues()
			case 0, 1: // a good request, or nearly
				i, n := in.n(rigGeometry.Slots), in.n(300)
				ticket++
				h := slots.Header{Ticket: ticket, Run: uint16(rigGeometry.RunFor(n)), Length: uint32(n), Answer: uint32(in.n(70)), Kind: slots.KindRequest, Method: rigMethod}
				switch in.n(12) {
				case 0:
					h.Run = uint16(in.word())
				case 1:
					h.Length = uint32(in.word())
				case 2:
					h.Answer = uint32(in.word())
				case 3:
					h.Method = uint32(in.word())
				case 4:
					h.Ticket = in.word()
				case 5:
					h.Deadline = int64(in.word())
				case 6:
					h.Kind = slots.KindOneWay
				}
				h.Encode(l.Ring.HeaderAt(i))
				l.immediate(uint32(i)<<8 | 1)
			case 2: // several at once, as they lie there
				l.immediate(uint32(in.n(rigGeometry.Slots))<<8 | uint32(in.n(5)))
			case 3:
				if in.n(16) == 0 {
					l.immediate(uint32(in.word()))
				}
			case 4:
				if in.n(8) == 0 { // while it is being handled, too
					l.Ring.HeaderAt(in.n(rigGeometry.Slots))[in.n(slots.HeaderSize)] = in.byte()
				}
			case 5:
				b.work(service, l.Ring, 1+in.n(8))
			case 6:
				b.a.cycle()
				a.a.cycle()
			}
			l.check(t)
		}
		l.Down()
		if m := b.d.Method(rigMethod); m.queue.len()+m.turns.n > 0 {
			t.Fatalf("%d requests of a lane that is down wait", m.queue.len()+m.turns.n)
		}
		b.work(service, l.Ring, 1000)
		b.a.cycle()
		l.check(t)
		b.bury(service)
		settle(b)
		l.idle(t)
		if m := b.d.Method(rigMethod); m != nil && (m.queue.len()+m.turns.n > 0 || len(m.workers) > 0) {
			t.Fatalf("%d requests wait, %d workers", m.queue.len()+m.turns.n, len(m.workers))
		}
	})
}

// rewrite makes slot i's word what a worker has written there, with a header that fits.
func (s *side) rewrite(r *slots.Ring, i int, w slots.Word) {
	q := slots.Header{Ticket: w.Ticket(), Run: uint16(w.Run()), Length: 8, Answer: 8, Kind: slots.KindRequest, Method: rigMethod, From: uint16(w.Owner())}
	q.Encode(r.HeaderAt(i))
	shm.Uint64At(ringMemory[r], offWords+8*i).Store(uint64(w))
	s.bells.MarkLane(rigLane)
}

// A worker that publishes a request once more, or makes others claim with tickets that were used, costs nobody the lane: the peer sees
// nothing of it. Each time is counted here, and each request has an outcome.
func TestTicketsThatWereUsed(t *testing.T) {
	a, b, out, in := remoteLane(t)
	bad, good := a.addWorker(4), a.addWorker(5)
	service := b.addService()
	call := func(w *rigWorker) *rigCall {
		t.Helper()
		c := a.send(w, out.Ring, 8, false, 1)
		settle(a, b)
		b.work(service, in.Ring, 1)
		settle(a, b)
		return c
	}
	first := call(bad)
	if !first.answered(t, 0) {
		t.Fatal("no answer")
	}
	i, before := first.u.Index, a.a.Count.ProtocolErrors
	for n := range uint64(3) {
		a.rewrite(out.Ring, i, slots.MakeWord(slots.Pub, 1, bad.id, first.u.Ticket))
		settle(a, b)
		if got := a.a.Count.ProtocolErrors - before; got != n+1 {
			t.Errorf("%d offences counted of %d", got, n+1)
		}
		if w := out.Ring.Word(i); w.State() != slots.Ans {
			t.Errorf("a request that was sent before is %v", w)
		}
	}
	// What comes next in the slot is claimed from an old ticket, twice, and then from one that is newer again.
	for _, ticket := range []uint64{first.u.Ticket - 3, first.u.Ticket - 1, first.u.Ticket} {
		shm.Uint64At(ringMemory[out.Ring], offWords+8*i).Store(uint64(slots.MakeWord(slots.Free, 0, 0, ticket)))
		for { // until it is that slot's turn
			c := call(good)
			if c == nil || !out.Ring.Answered(c.u, good.id) {
				t.Fatalf("from ticket %d: no outcome", ticket)
			}
			var h slots.Header
			h.Decode(out.Ring.Header(c.u))
			want := slots.StatusOK
			if c.u.Index == i && ticket != first.u.Ticket {
				want = slots.StatusMaybeExecuted
			}
			if h.Status != want {
				t.Errorf("from ticket %d: slot %d has the outcome %v, want %v", ticket, c.u.Index, h.Status, want)
			}
			if out.Ring.Consume(c.u); c.u.Index == i {
				break
			}
		}
	}
	if in.End == nil || out.End == nil || b.a.Count.ProtocolErrors != 0 {
		t.Errorf("the peer has seen it: lane up %v and %v, %d errors there", out.End != nil, in.End != nil, b.a.Count.ProtocolErrors)
	}
}

// What was refused here the peer has not seen: it does not make older tickets new ones. Two steps of nearly half of all there are go back.
func TestTicketsThatWereRefused(t *testing.T) {
	a, b, out, in := remoteLane(t)
	bad := a.addWorker(4)
	service := b.addService()
	first := a.send(bad, out.Ring, 8, false, 1)
	settle(a, b)
	b.work(service, in.Ring, 1)
	settle(a, b)
	if !first.answered(t, 0) {
		t.Fatal("no answer")
	}
	const step = 1<<39 - 1
	out.Sharing.Quota = 0 // refuses what is not the only one
	held := a.send(bad, out.Ring, 8, false, 1)
	settle(a, b)
	a.rewrite(out.Ring, first.u.Index, slots.MakeWord(slots.Pub, 1, bad.id, first.u.Ticket+step))
	settle(a, b)
	b.work(service, in.Ring, 1)
	settle(a, b)
	if !held.answered(t, 0) || a.a.Count.OverLimit != 1 {
		t.Fatalf("%d were refused", a.a.Count.OverLimit)
	}
	a.rewrite(out.Ring, first.u.Index, slots.MakeWord(slots.Pub, 1, bad.id, first.u.Ticket+2*step))
	settle(a, b)
	if in.End == nil || out.End == nil || b.a.Count.ProtocolErrors != 0 || a.a.Count.ProtocolErrors == 0 {
		t.Errorf("lane up %v and %v, %d errors at the peer, %d here", out.End != nil, in.End != nil, b.a.Count.ProtocolErrors, a.a.Count.ProtocolErrors)
	}
}
