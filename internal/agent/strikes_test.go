package agent

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// told counts what a domain reports.
type told struct {
	out     []*Worker
	damaged []*Worker
}

// judged makes a side's domain report offenders and damage.
func (s *side) judged(worker, domain int) *told {
	k := new(told)
	s.d.Strikes = StrikeRules{
		Worker: worker, Domain: domain,
		OnWorker: func(w *Worker, _ int, _ Misdeed) { k.out = append(k.out, w) },
		OnDomain: func(w *Worker, _ int) { k.damaged = append(k.damaged, w) },
	}
	return k
}

// spoil publishes requests that no correct worker does.
func (s *side) spoil(t *testing.T, w *rigWorker, r *slots.Ring, n int) {
	t.Helper()
	for range n {
		c := s.send(w, r, 8, false, 1)
		if c == nil {
			t.Fatal("no room")
		}
		clear(r.Header(c.u))
		s.a.cycle()
		if !r.Answered(c.u, w.id) {
			t.Fatal("a request without a header is not refused")
		}
		r.Consume(c.u)
	}
}

// A worker is disconnected for what only it can have done, once, and not for what others
// of its domain can have written.
func TestOffences(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	k := s.judged(5, 0)
	a := s.addWorker(7)
	s.spoil(t, a, out.Ring, 4)
	if len(k.out) != 0 {
		t.Fatal("disconnected below the limit")
	}
	b := s.addWorker(8)
	s.spoil(t, a, out.Ring, 20)
	if len(k.out) != 0 || a.view.offences.Total != 4 || s.a.Count.Damages != 20 {
		t.Errorf("two processes: %d told, %d offences, %d damages", len(k.out), a.view.offences.Total, s.a.Count.Damages)
	}
	// The ring of hints is b's alone.
	for i := range 10 {
		b.rings.Up.Push(slots.MakeHint(slots.MaxLanes-1, i, 1))
	}
	s.bells.MarkWorker(b.id)
	s.a.cycle()
	if len(k.out) != 1 || k.out[0] != b.view || b.view.offences.Total != 10 || a.view.offences.Total != 4 {
		t.Errorf("told of %v, %d offences", k.out, b.view.offences.Total)
	}
	// A bad word that stays is one offence.
	s.bury(b)
	w := slots.MakeWord(slots.Pub, 60, a.id, 9)
	before := a.view.offences.Total
	out.blamed[1] = 0
	for range 10 {
		out.misused(1, w, true)
	}
	if n := a.view.offences.Total - before; n != 1 {
		t.Errorf("one word makes %d offences", n)
	}
}

// A process has as many offences as all that it attaches as, at once and one after the other.
func TestOffencesOfAProcess(t *testing.T) {
	s := newSide(t, nil)
	s.localLane(t)
	k := s.judged(10, 0)
	offend := func(w *rigWorker, n int) {
		for range n {
			s.d.Offence(w.view, badHint)
		}
	}
	ofProcess := func(id, pid int) *rigWorker {
		w := s.addWorker(id)
		w.view.PID = pid
		return w
	}
	a, other := ofProcess(7, 1000), ofProcess(8, 1001)
	offend(a, 4)
	s.bury(a)
	offend(other, 9)
	b, c := ofProcess(7, 1000), ofProcess(9, 1000)
	offend(b, 3)
	offend(c, 2)
	if len(k.out) != 0 {
		t.Fatalf("%d disconnected, none of a process with 10 offences", len(k.out))
	}
	offend(b, 1)
	offend(c, 1)
	if len(k.out) != 2 || k.out[0] != b.view || k.out[1] != c.view {
		t.Errorf("disconnected: %v", k.out)
	}
	for _, w := range s.d.offenders {
		w.began -= int64(StrikeWindow)
	}
	offend(ofProcess(10, 1002), 1)
	if len(s.d.offenders) != 1 {
		t.Errorf("%d processes are kept, one has offended lately", len(s.d.offenders))
	}
}

// While a process lives that has said goodbye, and had a lane, words in lanes are held against nobody else: it may write them.
func TestWordsBesideOneThatHasParted(t *testing.T) {
	parent, dead := os.Getppid(), exec.Command("/bin/true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		pid    int
		lane   bool
		blamed bool
	}{
		"alive":            {os.Getpid(), true, false},
		"without a lane":   {os.Getpid(), false, true},
		"dead":             {dead.Process.Pid, true, true},
		"the same process": {parent, true, true},
		"unknown":          {0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, nil)
			out, _ := s.localLane(t)
			k := s.judged(5, 0)
			a, b := s.addWorker(7), s.addWorker(8)
			a.view.PID, b.view.PID = parent, x.pid
			if x.lane {
				b.view.uses[0] = 1
			}
			s.d.Detach(b.view)
			s.a.cycle()
			s.d.Part(b.view)
			s.d.Bury(b.view)
			s.spoil(t, a, out.Ring, 5)
			if blamed := len(k.out) == 1 && k.out[0] == a.view; blamed != x.blamed {
				t.Errorf("blamed: %v; %d damages", blamed, s.a.Count.Damages)
			}
		})
	}
}

// A service in the core is blamed for nothing that others can have written, also when it is the only process of the domain: one that has
// died may have given the memory to its children.
func TestWordsBesideAServiceInTheCore(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	k := s.judged(5, 0)
	own, hostile := s.addWorker(7), s.addWorker(8)
	own.view.PID, hostile.view.PID = os.Getpid(), os.Getppid()
	s.bury(hostile) // it has died, without a goodbye
	s.spoil(t, own, out.Ring, 64)
	if len(k.out) != 0 || own.view.offences.Total != 0 || s.a.Count.Damages != 64 {
		t.Errorf("%d are blamed, %d offences, %d damages", len(k.out), own.view.offences.Total, s.a.Count.Damages)
	}
}

// Nor in a domain of which an earlier core may have known who has parted.
func TestWordsInInheritedMemory(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	k := s.judged(5, 0)
	s.d.Inherit()
	a := s.addWorker(7)
	s.spoil(t, a, out.Ring, 5)
	if len(k.out) != 0 || s.a.Count.Damages != 5 {
		t.Errorf("%d are blamed, %d damages", len(k.out), s.a.Count.Damages)
	}
}

// A process that is dead leaves no offences to the next one with its id.
func TestOffencesEndWithTheProcess(t *testing.T) {
	s := newSide(t, nil)
	k := s.judged(5, 0)
	a := s.addWorker(7)
	a.view.PID = 1000
	for range 4 {
		s.d.Offence(a.view, badHint)
	}
	s.d.Detach(a.view)
	s.d.Bury(a.view)
	s.d.Mourn(a.view, shm.Nanotime())
	b := s.addWorker(8)
	b.view.PID = 1000
	s.d.Offence(b.view, badHint)
	if len(k.out) != 0 {
		t.Error("it is disconnected for what another one did")
	}
}

// How many have parted is bounded by how many live.
func TestPartedThatAreDead(t *testing.T) {
	s := newSide(t, nil)
	const beyond = 1 << 30 // no process has such an id
	for i := range 1000 {
		s.d.Part(&Worker{PID: beyond + i, uses: [slots.MaxLanes / 64]uint64{1}})
	}
	if n := len(s.d.parted.pids); n > 2*partedAtFirst {
		t.Errorf("%d are kept, and none of them lives", n)
	}
}

// Errors are held against nobody for ever.
func TestStrikesAreForgotten(t *testing.T) {
	var k strikes
	now := int64(1)
	for range 100 {
		if n := k.add(now); n > 11 {
			t.Fatalf("%d errors within the window", n)
		}
		now += int64(time.Second)
	}
	if k.Total != 100 {
		t.Errorf("%d errors in all", k.Total)
	}
}

// A domain is reported when its memory is damaged while a process has it that was
// disconnected some time ago.
func TestDamageIsReported(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	k := s.judged(0, 5)
	a, b := s.addWorker(7), s.addWorker(8)
	s.spoil(t, a, out.Ring, 20)
	s.d.Detach(b.view)
	s.d.Damages.quiet = 0
	s.spoil(t, a, out.Ring, 20)
	if len(k.damaged) != 0 {
		t.Error("reported without a process that lingers")
	}
	b.view.wentAt -= int64(LingerGrace)
	s.d.Damages.quiet = 0
	s.spoil(t, a, out.Ring, 20)
	if len(k.damaged) != 1 || k.damaged[0] != b.view {
		t.Errorf("reported %v", k.damaged)
	}
}

// What a domain does in one cycle is bounded, whatever its workers do: requests that are
// refused, and hints.
func TestFloodIsBounded(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	var flooders []*rigWorker
	for i := range 4 {
		flooders = append(flooders, s.addWorker(10+i))
	}
	for _, w := range flooders {
		for i := range slots.HintEntries {
			w.rings.Up.Push(slots.MakeHint(rigLane, i%rigGeometry.Slots, 1))
		}
		s.bells.MarkWorker(w.id)
	}
	s.a.cycle()
	if n := len(s.d.againWorkers); n != len(flooders)-1 {
		t.Errorf("%d of %d workers were left for the next cycle", n, len(flooders))
	}
	for cycles := 0; s.a.cycle() > 0; cycles++ {
		if cycles > 100 {
			t.Fatal("it never ends")
		}
	}
	for _, w := range flooders {
		if !w.view.Rings.Up.Empty() {
			t.Errorf("worker %d was forgotten", w.id)
		}
	}
	refusedPlan(t, s, flooders[0], out)
}

// An agent with several domains takes a few hints of a worker in a cycle, all of them in
// the end, and finds what a worker has finished whose hint found no room in its ring.
func TestFloodBesideADomain(t *testing.T) {
	s := newSide(t, nil)
	s.a.Domains = append(s.a.Domains, NewDomain(s.a, slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize))))
	out, in := s.localLane(t)
	caller, service := s.addWorker(1), s.addService()
	call := callWithoutHint(t, s, out, in, caller, service)
	for i := range slots.HintEntries {
		service.rings.Up.Push(slots.MakeHint(rigLane, (call.u.Index+1)%rigGeometry.Slots, uint64(i)))
	}
	s.bells.MarkWorker(service.id)
	cycles := 0
	for ; s.a.cycle() > 0; cycles++ {
		if cycles > 100 {
			t.Fatal("it never ends")
		}
	}
	if cycles < slots.HintEntries/sharedHints || !service.view.Rings.Up.Empty() {
		t.Errorf("all hints are taken after %d cycles", cycles)
	}
	if got := call.status(t); got != slots.StatusOK {
		t.Errorf("answered with %v", got)
	}
}

// An agent does not go to sleep while a worker's slots are still to be looked at for which a cycle had no time, also if that cycle
// has found nothing else to do.
func TestNoSleepBeforeALook(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, service := s.addWorker(1), s.addService()
	call := callWithoutHint(t, s, out, in, caller, service)
	for _, w := range []*rigWorker{caller, service} {
		w.view.scan = true // its ring of hints was full
		s.bells.MarkWorker(w.id)
	}
	if caller.id > service.id {
		t.Fatal("the service has the first turn")
	}
	for s.a.cycle() > 0 || s.a.pending() {
	}
	if got := call.status(t); got != slots.StatusOK {
		t.Errorf("answered with %v", got)
	}
}

// callWithoutHint makes a call that the service answers, without the hint that says so.
func callWithoutHint(t *testing.T, s *side, out *OutLane, in *InLane, caller, service *rigWorker) *rigCall {
	t.Helper()
	call := s.send(caller, out.Ring, 8, false, 1)
	settle(s)
	pick(t, in.Ring, service, call.u.Index)
	answer := slots.Header{Ticket: call.u.Ticket, Run: uint16(call.u.Len), Kind: slots.KindAnswer}
	answer.Encode(in.Ring.Header(call.u))
	in.Ring.Finish(call.u, service.id)
	return call
}

// refusedPlan checks that a plan ends after as many refused requests as it may have groups.
func refusedPlan(t *testing.T, s *side, w *rigWorker, out *OutLane) {
	t.Helper()
	// As many refused requests as the lane may have groups in a cycle.
	n := 0
	for s.send(w, out.Ring, 8, false, 1) != nil {
		n++
	}
	for i := range n {
		clear(out.Ring.HeaderAt(i))
	}
	if took, more := out.Plan.Plan(out, 10); took != 0 || !more || s.a.Count.Refused != 10 {
		t.Errorf("%d taken, %d refused by a plan of 10", took, s.a.Count.Refused)
	}
}
