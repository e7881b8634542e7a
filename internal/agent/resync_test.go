package agent

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// reconnect does what the two conductors do when a lane is opened again.
func reconnect(t testing.TB, a, b *side, out *OutLane, in *InLane, tag uint64) (verdicts []byte) {
	t.Helper()
	out.Suspend()
	list, err := DecodeSent(EncodeSent(out.Outstanding()), in.geo)
	if err != nil {
		t.Fatal(err)
	}
	in.Suspend()
	verdicts, ok := in.Query(list)
	if !ok || CheckVerdicts(verdicts, len(list)) != nil {
		t.Fatalf("the mirror is another's: %v", verdicts)
	}
	p, q := a.endpointOf(t, out.Ring, tag), b.endpointOf(t, in.Ring, tag+1)
	join(t, p, q)
	if err := in.Up(q); err != nil {
		t.Fatal(err)
	}
	if err := out.Up(p); err != nil {
		t.Fatal(err)
	}
	out.Resync(list, verdicts)
	return verdicts
}

// Requests that are everywhere on their way when the connection is lost are executed
// once and answered once when there is another one.
func TestResync(t *testing.T) {
	a, b, out, in := remoteLane(t)
	service := b.addService()
	w := a.addWorker(7)
	// Connections count their work requests anew.
	for range 50 {
		if c := a.send(w, out.Ring, 10, false, 1); c != nil {
			settle(a, b)
			b.work(service, in.Ring, 1)
			settle(a, b)
			c.answered(t, 0)
		}
	}
	before := b.a.Count.RequestsReceived
	var calls []*rigCall
	send := func(n int) {
		for range n {
			c := a.send(w, out.Ring, 100, len(calls)%7 == 6, byte(len(calls)))
			if c == nil {
				t.Fatal("the ring is full")
			}
			calls = append(calls, c)
		}
	}
	send(14) // arrived
	a.a.cycle()
	b.a.cycle()
	b.work(service, in.Ring, 4) // and some are answered, which nobody notices
	b.a.cycle()
	b.work(service, in.Ring, 2)
	b.d.collect(service.view)
	p := out.End
	send(7) // sent and not noticed
	l := out.Send()
	if l != 7 || p.posted == 0 {
		t.Fatalf("%d were sent", l)
	}
	send(7) // published
	v := reconnect(t, a, b, out, in, 11)
	var counts [3]int
	for _, x := range v {
		counts[x]++
	}
	if counts[notSeen] == 0 || counts[executing] == 0 || counts[answered] == 0 {
		t.Fatalf("verdicts %v", v)
	}
	// And again, before anything of it has been noticed.
	again := 0
	for _, x := range reconnect(t, a, b, out, in, 13) {
		if x == byte(notSeen) {
			again++
		}
	}
	for range 20 {
		settle(a, b)
		b.work(service, in.Ring, 100)
	}
	for i, c := range calls {
		if !c.answered(t, 0) {
			t.Errorf("call %d of %d in slot %d: %v, answer word %v", i, len(calls), c.u.Index, out.Ring.Word(c.u.Index), in.Ring.AnswerWord(c.u.Index))
		}
	}
	if n := b.a.Count.RequestsReceived - before; n != uint64(len(calls)) {
		t.Errorf("%d requests arrived of %d", n, len(calls))
	}
	if n := a.a.Count.Resent; n != uint64(counts[notSeen]+again) {
		t.Errorf("%d requests were sent again, %d and %d had not been seen", n, counts[notSeen], again)
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}

// What was sent by one connection is not waited for by the next one, which counts its
// work requests anew: answers go to their owners though nothing more is sent.
func TestAnswersOverTheNextConnection(t *testing.T) {
	a, b, out, in := remoteLane(t)
	service := b.addService()
	w := a.addWorker(7)
	var calls []*rigCall
	for range 5 {
		calls = append(calls, a.send(w, out.Ring, 10, false, 1))
		settle(a, b)
	}
	reconnect(t, a, b, out, in, 11)
	b.work(service, in.Ring, 100)
	settle(a, b)
	for i, c := range calls {
		if !c.answered(t, 0) {
			t.Errorf("call %d: %v", i, out.Ring.Word(c.u.Index))
		}
	}
	out.idle(t)
	in.idle(t)
}

// A process posts a message and dies while the lane has no connection. The message is
// sent when there is one, and nobody gets the process's id before; its request is dropped.
func TestPostsOfTheDeadOutliveTheConnection(t *testing.T) {
	a, b, out, in := remoteLane(t)
	service := b.addService()
	w := a.addWorker(7)
	out.Suspend()
	a.send(w, out.Ring, 300, true, 1)
	a.send(w, out.Ring, 10, false, 2)
	a.bury(w)
	settle(a)
	if !a.d.unsettled(w.id) {
		t.Error("its id could be another's")
	}
	reconnect(t, a, b, out, in, 11)
	for range 3 {
		settle(a, b)
		b.work(service, in.Ring, 10)
	}
	if n := b.a.Count.RequestsReceived; n != 1 {
		t.Errorf("%d messages have arrived", n)
	}
	if a.d.unsettled(w.id) {
		t.Error("its id cannot be used again")
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}

// What is under way in a mirror that the requester does not ask for makes it another
// one's.
func TestMirrorOfAnother(t *testing.T) {
	a, b, out, in := remoteLane(t)
	b.addService()
	w := a.addWorker(7)
	a.send(w, out.Ring, 10, false, 1)
	a.send(w, out.Ring, 10, false, 2)
	a.a.cycle()
	b.a.cycle()
	out.Suspend()
	in.Suspend()
	list := out.Outstanding()
	if _, ok := in.Query(list[:1]); ok {
		t.Error("a request that nobody waits for went unnoticed")
	}
	if v, ok := in.Query(list); !ok || len(v) != 2 {
		t.Errorf("%v, %v", v, ok)
	}
	out.Lost("a test")
	for _, s := range list {
		if got := out.Ring.Word(s.index).State(); got != slots.Ans {
			t.Errorf("slot %d: %v", s.index, got)
		}
	}
}

// Lists of requests and verdicts that no peer makes are refused.
func TestBadResync(t *testing.T) {
	g := rigGeometry
	good := EncodeSent([]SentRequest{{0, 1}, {5, 1<<40 - 1}, {63, 0}})
	if l, err := DecodeSent(good, g); err != nil || len(l) != 3 || l[1] != (SentRequest{5, 1<<40 - 1}) {
		t.Errorf("%v, %v", l, err)
	}
	for name, b := range map[string][]byte{
		"half a name":     good[:12],
		"beyond":          EncodeSent([]SentRequest{{64, 1}}),
		"twice":           EncodeSent([]SentRequest{{3, 1}, {3, 1}}),
		"backwards":       EncodeSent([]SentRequest{{3, 1}, {2, 1}}),
		"more than slots": make([]byte, (g.Slots+1)*slots.NameSize),
	} {
		if _, err := DecodeSent(b, g); !errors.Is(err, errResync) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, v := range [][]byte{nil, {0}, {0, 1, 2}, {0, 3}} {
		if err := CheckVerdicts(v, 2); !errors.Is(err, errResync) {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// Whatever bytes a peer sends as names, what is decoded can be used without another look,
// and is what it was encoded from.
func FuzzDecodeSent(f *testing.F) {
	f.Add([]byte{})
	f.Add(EncodeSent([]SentRequest{{0, 1}, {5, 1<<40 - 1}, {63, 0}}))
	f.Add(EncodeSent([]SentRequest{{64, 1}}))
	f.Add(EncodeSent([]SentRequest{{7, 1}, {7, 1}}))
	f.Add(make([]byte, 65*slots.NameSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := DecodeSent(b, rigGeometry)
		if err != nil {
			if !errors.Is(err, errResync) || list != nil {
				t.Fatalf("%v, %v", list, err)
			}
			return
		}
		if len(list) > rigGeometry.Slots {
			t.Fatalf("%d requests for %d slots", len(list), rigGeometry.Slots)
		}
		last := -1
		for _, s := range list {
			if s.index <= last || s.index >= rigGeometry.Slots || s.ticket > slots.TicketMask {
				t.Fatalf("%+v after slot %d", s, last)
			}
			last = s.index
		}
		if !bytes.Equal(EncodeSent(list), b) {
			t.Fatalf("%x comes back as %x", b, EncodeSent(list))
		}
		// And a mirror that has never seen one of them says so.
		in := InLane{records: make([]record, rigGeometry.Slots)}
		v, ok := in.Query(list)
		if !ok || CheckVerdicts(v, len(list)) != nil || bytes.ContainsAny(v, "\x01\x02") {
			t.Fatalf("verdicts %v, %v", v, ok)
		}
	})
}

// What is published while the lane has no connection, and nothing else is under way, is
// sent when there is one, without anything else that wakes the agent.
func TestPublishedWhileSuspended(t *testing.T) {
	a, b, out, in := remoteLane(t)
	service := b.addService()
	w := a.addWorker(7)
	out.Suspend()
	in.Suspend()
	c := a.send(w, out.Ring, 10, false, 1)
	a.a.cycle() // it has looked, and could not send
	reconnect(t, a, b, out, in, 11)
	for range 10 { // without a look at all slots
		a.a.cycle()
		b.a.cycle()
		b.work(service, in.Ring, 1)
	}
	if !c.answered(t, 0) {
		t.Errorf("%v", out.Ring.Word(c.u.Index))
	}
}
