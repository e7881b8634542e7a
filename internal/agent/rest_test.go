package agent

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// Agents poll before they sleep only if that leaves others a processor, and enough time.
func TestIdleOf(t *testing.T) {
	unlimited := math.Inf(1)
	spin := 50 * time.Microsecond
	for _, c := range []struct {
		agents, processors int
		time               float64
		idle               string
		want               IdleStrategy
	}{
		{1, 2, unlimited, "busy", IdleStrategy{busy: true}},
		{2, 2, unlimited, "busy", IdleStrategy{busy: true}},
		{1, 2, unlimited, "event", IdleStrategy{}},
		{1, 2, unlimited, "adaptive", IdleStrategy{spin: shm.WaitAdaptive(spin)}},
		{1, 1, unlimited, "adaptive", IdleStrategy{}},
		{1, 2, 1, "adaptive", IdleStrategy{spin: shm.WaitAdaptive(spin)}},
		{1, 2, 0.5, "adaptive", IdleStrategy{}},
		{2, 8, 1.5, "adaptive", IdleStrategy{}},
		{2, 2, unlimited, "adaptive", IdleStrategy{}},
		{3, 64, unlimited, "adaptive", IdleStrategy{spin: shm.WaitAdaptive(spin)}},
	} {
		cfg := &config.Config{Agent: config.Agent{Count: c.agents, Idle: c.idle, Spin: spin}}
		if got := idleOf(cfg, c.processors, c.time); got != c.want {
			t.Errorf("%d agents, %d processors, %v of their time, %s: %+v, want %+v", c.agents, c.processors, c.time, c.idle, got, c.want)
		}
	}
}

// idler is an agent that does not run, and what it was told to do.
type idler struct {
	*Agent
	done int
}

func newIdler(t *testing.T, idle IdleStrategy) *idler {
	t.Helper()
	a, err := New("idler", idle, 16, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Release)
	return &idler{Agent: a}
}

// told gives it something to do.
func (i *idler) told(t *testing.T) {
	t.Helper()
	if !i.Commands.Do(func() { i.done++ }) {
		t.Fatal("it takes no command")
	}
}

// An agent that polls does what it finds; one that sleeps at once or polls for ever does not
// look here.
func TestAgentSpins(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // or it would keep the last one
	i := newIdler(t, IdleStrategy{spin: shm.WaitAdaptive(shm.MaxSpin)})
	// Others may keep the processor for longer than it polls, which costs many rounds without.
	for end := time.Now().Add(time.Minute); i.done == 0; {
		if i.told(t); i.spins() != (i.done > 0) {
			t.Fatalf("it has done %d things, and says otherwise", i.done)
		}
		if time.Now().After(end) {
			t.Fatal("it never looks")
		}
	}
	for _, idle := range []IdleStrategy{{}, {busy: true}} {
		i := newIdler(t, idle)
		if i.told(t); i.spins() || i.done > 0 {
			t.Errorf("%+v: it has done %d things", idle, i.done)
		}
	}
}

// Another strategy holds from the next rest on.
func TestAgentRestsAnew(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	i := newIdler(t, IdleStrategy{})
	i.Idle = IdleStrategy{spin: shm.WaitAdaptive(shm.MaxSpin)}
	for end := time.Now().Add(time.Minute); i.done == 0 && time.Now().Before(end); {
		i.told(t)
		i.spins()
	}
	if i.done == 0 {
		t.Error("it sleeps at once still")
	}
	i.Idle = IdleStrategy{}
	before := i.done
	if i.told(t); i.spins() || i.done != before {
		t.Error("it still polls")
	}
}

// What an agent has learnt of waits with nothing under way does not keep it from polling while
// something is.
func TestAgentSpinsApart(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	i := newIdler(t, IdleStrategy{spin: shm.WaitAdaptive(20 * time.Microsecond)})
	d := &Domain{}
	i.Domains = append(i.Domains, d)
	polled := false
	i.found = func() bool { polled = true; return false }
	spins := func() bool {
		polled = false
		if i.spins() {
			t.Fatal("it has found something where there is nothing")
		}
		return polled
	}
	const waits = 2000
	vain := 0
	for range waits {
		if spins() {
			vain++
		}
	}
	if vain == 0 || vain > waits/20 {
		t.Errorf("%d of %d waits polled in vain", vain, waits)
	}
	if d.underWay = 1; !spins() {
		t.Error("it does not poll with a request under way")
	}
}

// unarmed is a completion queue that has nothing and cannot be armed.
type unarmed struct{ fabric.CQ }

func (unarmed) Arm() (bool, error) { return false, errors.New("input/output error") }
func (unarmed) Close() error       { return nil }

// ready counts how often a descriptor was found ready.
type ready int

func (l *ready) Ready(int, uint32) { *l++ }

// An agent whose completion queue cannot be armed looks for events all the same, says so once, and does not go round and round
// meanwhile.
func TestQueueThatCannotBeArmed(t *testing.T) {
	var log bytes.Buffer
	a, err := New("unarmed", IdleStrategy{}, 16, nil, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Release)
	a.CQs = []fabric.CQ{unarmed{}, unarmed{}}
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bell.Close() })
	found := new(ready)
	if err := a.Poll.Add(bell.FD(), unix.EPOLLIN|unix.EPOLLET, found); err != nil {
		t.Fatal(err)
	}
	const rounds = 10
	for i := range rounds {
		bell.Ring()
		if a.rest(); *found != ready(i+1) {
			t.Fatalf("after %d rounds with an event each it has seen %d", i+1, *found)
		}
	}
	began := time.Now()
	for range rounds {
		a.rest()
	}
	if took := time.Since(began); took < rounds*unarmedRest/2 {
		t.Errorf("%d rounds with nothing to do take %v", rounds, took)
	}
	if n := bytes.Count(log.Bytes(), []byte("cannot be armed")); n != 2 {
		t.Errorf("of two queues it is said %d times:\n%s", n, log.String())
	}
}

// What nobody has told the agent of, because its worker was stopped just then, is found before the agent sleeps for long.
func TestFoundBeforeALongSleep(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, w := s.addService(), s.addWorker(1)
	c := s.send(w, out.Ring, 10, false, 1)
	s.bells.TakeLanes(func(uint16) {}) // it has not come to its mark
	s.a.Idle = IdleStrategy{}
	late := time.AfterFunc(10*time.Second, func() { s.a.Commands.Do(func() {}) }) // or it would sleep for ever
	s.a.rest()
	if !late.Stop() {
		t.Error("it was not found")
	}
	settle(s)
	s.work(service, in.Ring, 1)
	settle(s)
	if !c.answered(t, 0) {
		t.Error("it was not answered")
	}
}

// Nor does it sleep while there is room that nobody has looked for.
func TestNoSleepWithRoom(t *testing.T) {
	s := newSide(t, nil)
	if s.d.roomier = true; !s.a.pending() {
		t.Error("it sleeps")
	}
}
