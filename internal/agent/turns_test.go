package agent

import "testing"

// turnsRig is a queue with callers whose requests have runs of different lengths.
func turnsRig(t *testing.T, runs ...int) (*turns, *InLane) {
	s := newSide(t, nil)
	l := NewInLane(s.d, rigLane, newRing(t), newVault(t), 16)
	q := new(turns)
	for c, run := range runs {
		for k := range 8 {
			i := c*8 + k
			l.records[i].run, l.records[i].from = uint16(run), uint16(c)
			q.add(Queued{lane: l, index: i})
		}
	}
	return q, l
}

// Callers get the same number of bytes, in turns, whatever the size of their
// requests, and each its requests in order.
func TestTurnsAreByBytes(t *testing.T) {
	const slot = 128
	runs := []int{1, 2, 4, 64}
	q, _ := turnsRig(t, runs...)
	bytes := make([]int, len(runs))
	last := []int{-1, -1, -1, -1}
	room := 0
	hand := func(r Queued) verdict {
		c := r.caller()
		if room == 0 {
			return full
		}
		room--
		if r.index <= last[c.id] {
			t.Errorf("request %d of caller %d after %d", r.index, c.id, last[c.id])
		}
		last[c.id] = r.index
		bytes[c.id] += runs[c.id] * slot
		return given
	}
	for range 40 {
		room = 1
		q.drain(hand)
		for a := range runs {
			for b := range runs {
				// As long as both have something: a turn and a request of each apart.
				if last[a] < a*8+7 && last[b] < b*8+7 && bytes[a]-bytes[b] > 2*turnBytes+(runs[a]+runs[b])*slot {
					t.Fatalf("bytes %v", bytes)
				}
			}
		}
	}
	if q.n != 0 || len(q.order) != 0 || len(q.callers) != 0 {
		t.Errorf("%d requests of %d callers are left", q.n, len(q.callers))
	}
}

// A caller that is full keeps no other waiting, and what needs nothing more is
// dropped.
func TestTurnsOfCallersThatCannotGoOn(t *testing.T) {
	q, l := turnsRig(t, 1, 1, 1, 1)
	var got [4]int
	q.drain(func(r Queued) verdict {
		c := r.caller()
		switch {
		case c.id == 0 || c.id == 1 && got[1] == 4:
			return full
		case c.id == 2:
			return gone
		}
		got[c.id]++
		return given
	})
	if got != [4]int{0, 4, 0, 8} || q.n != 12 || !q.has(caller{l, 0}) || q.has(caller{l, 2}) {
		t.Errorf("handed on %v, %d left", got, q.n)
	}
	other := NewInLane(l.domain, rigLane, newRing(t), newVault(t), 16)
	q.add(Queued{lane: other, index: 1})
	q.forget(l)
	if q.n != 1 || len(q.callers) != 1 {
		t.Errorf("%d requests are left", q.n)
	}
	q.drain(func(Queued) verdict { return given })
	if q.n != 0 || len(q.callers) != 0 {
		t.Errorf("%d requests are left", q.n)
	}
}

// One caller fills a process; when others call too, what it has more than its part
// waits in the daemon, and theirs goes on.
func TestGreedyCallerWaitsInTheDaemon(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service := s.addService()
	service.view.Handlers = 1
	greedy, modest := s.addWorker(11), s.addWorker(12)
	s.d.modest = true
	s.d.judged = 1 << 62
	first := s.send(modest, out.Ring, 8, false, 1)
	var calls []*rigCall
	for range 50 {
		calls = append(calls, s.send(greedy, out.Ring, 8, false, 2))
	}
	settle(s)
	if n := service.view.outstanding; n < 1+shortRoom || n > 1+shortRoom+callerBytes/rigGeometry.SlotSize {
		t.Errorf("the process has %d requests", n)
	}
	late := s.send(modest, out.Ring, 8, false, 3)
	settle(s)
	before := service.view.outstanding
	s.work(service, in.Ring, before)
	settle(s)
	if !first.answered(t, 0) || !late.answered(t, 0) {
		t.Error("a modest caller waits behind what a greedy one has in the daemon")
	}
	for range 50 {
		s.work(service, in.Ring, 50)
		settle(s)
	}
	for _, c := range calls {
		if !c.answered(t, 0) {
			t.Error("a request of the greedy one has no answer")
		}
	}
	if u := in.callers[greedy.id]; u.given != 0 || u.open != 0 || u.most != 50*128 {
		t.Errorf("%+v is left", u)
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}

// Waiting costs no allocation once there has been as much of it.
func TestTurnsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	q, l := turnsRig(t, 1, 1)
	room := 0
	hand := func(Queued) verdict {
		if room--; room < 0 {
			return full
		}
		return given
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		for range 16 {
			i = (i + 5) % 16
			q.add(Queued{lane: l, index: i})
		}
		room = 16 + i%8
		q.drain(hand)
		if q.n == 0 {
			q.add(Queued{lane: l, index: i})
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
