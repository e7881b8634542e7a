package agent

import (
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/slots"
)

// simGeometry makes pages of memory with one kind of thing each, so that a page that
// cannot be written to stops a core between two kinds of stores.
var simGeometry = slots.Geometry{SlotSize: 128, Slots: 512, MaxRun: 16}

const (
	simMethod  = 5 // that services serve
	simNobodys = 6 // that nobody serves
)

// simFailure is what a simulation panics with when something is wrong.
type simFailure string

// rates are how likely faults are, in thousandths: of a step's for those that are
// steps, else of each occasion.
type rates struct {
	fault                             int
	half, reset, post                 int
	crash, kill, cut, hold, lose, die int
}

// world is one simulation: two nodes, the fabric and the link between them, and what
// must be true of all that happens in it. Everything is decided by one stream of random
// numbers, on one goroutine.
type world struct {
	seed   uint64
	rand   *rand.Rand
	mutant string
	// unordered: the fabric keeps no order between writes.
	unordered bool
	nodes     [2]*simNode
	net       *simNet
	arena     *arena
	calls     []*simCall
	step      int
	names     uint64 // of mirrors
	rate      rates
	// window is where claims begin.
	window, width int
	// calm: no more faults, and no more requests.
	calm    bool
	tracing bool
	trace   []string
	counts  map[string]int
}

func (w *world) n(limit int) int { return w.rand.IntN(limit) }

// chance is true in so many of 1000 cases, and never when all is calm.
func (w *world) chance(of1000 int) bool { return !w.calm && w.rand.IntN(1000) < of1000 }

func (w *world) count(what string) { w.counts[what]++ }

func (w *world) log(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%4d  ", w.step)+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.tracing {
		w.dump()
	}
	panic(simFailure(fmt.Sprintf("step %d: ", w.step) + fmt.Sprintf(format, args...)))
}

// profiles are what can go wrong in a simulation. That of a seed is its remainder.
var profiles = []struct {
	name  string
	rates rates
}{
	{"nothing", rates{}},
	{"connections", rates{fault: 12, half: 30, reset: 30, post: 30, cut: 1}},
	{"cores", rates{fault: 12, crash: 3, die: 1}},
	{"connections and cores", rates{fault: 16, half: 20, reset: 20, post: 10, crash: 3, cut: 2}},
	{"workers", rates{fault: 20, kill: 1}},
	{"workers and cores", rates{fault: 20, kill: 2, crash: 3, die: 1}},
	{"nodes", rates{fault: 12, half: 5, reset: 5, cut: 3, hold: 3, lose: 1}},
	{"everything", rates{fault: 20, half: 15, reset: 15, post: 8, crash: 5, kill: 3, cut: 3, hold: 2, lose: 1, die: 1}},
}

func newWorld(seed uint64, mutant string, a *arena, tracing bool) *world {
	a.reset()
	w := &world{
		seed: seed, rand: rand.New(rand.NewPCG(seed, 0x5117)), mutant: mutant, arena: a, tracing: tracing,
		rate: profiles[seed%uint64(len(profiles))].rates, counts: make(map[string]int), names: 1,
	}
	w.net = &simNet{w: w}
	w.unordered = seed/uint64(len(profiles))%4 == 1 || mutant == mutOrderPromised
	// Around the ends of pages of the vault, mostly, and of the ring.
	places := []int{0, 119, 250, 371, 490}
	w.window, w.width = places[w.n(len(places))], 6+w.n(40)
	for i := range w.nodes {
		w.nodes[i] = &simNode{w: w, name: string(rune('A' + i)), incarnation: 1}
	}
	w.nodes[0].peer, w.nodes[1].peer = w.nodes[1], w.nodes[0]
	return w
}

// delays lets the agents of a third of the seeds hold groups back, for a few steps. The
// time is the step: an agent of a simulation never sleeps, so it needs no timer.
func (w *world) delays(a *Agent) {
	if w.seed/8%3 == 1 {
		a.delay.limit = time.Duration(1 + w.seed%30)
		a.delay.clock = func() int64 { return int64(w.step) + 1 }
	}
}

// run is the whole simulation: steps with faults, then what is needed for all to come
// to rest, then the verification that nothing is left.
func (w *world) run(steps int) {
	for _, n := range w.nodes {
		n.create()
		n.start()
		n.populate()
	}
	for w.step = 1; w.step <= steps; w.step++ {
		w.act()
		if w.n(16) == 0 {
			w.check()
		}
	}
	w.rest()
}

// act is a step.
func (w *world) act() {
	n := w.nodes[w.n(2)]
	if w.chance(w.rate.fault) {
		w.fault(n)
		return
	}
	switch k := w.n(100); {
	case k < 30:
		n.clientAct()
	case k < 44:
		n.serviceAct()
	case k < 64:
		n.cycle()
	case k < 84:
		w.net.act()
	case k < 97:
		n.linkAct()
	default:
		n.workersAct()
	}
}

// fault is a step that does harm.
func (w *world) fault(n *simNode) {
	r := &w.rate
	k := w.n(r.crash + r.kill + r.cut + r.hold + r.lose + r.die + 1)
	for _, f := range []struct {
		rate int
		do   func()
	}{
		{r.crash, func() { n.arm() }},
		{r.kill, n.killWorker},
		{r.cut, n.cutSession},
		{r.hold, n.holdOut},
		{r.lose, n.lose},
		{r.die, func() { n.crash("for nothing") }},
	} {
		if k < f.rate {
			f.do()
			return
		}
		k -= f.rate
	}
	w.count("node: stops for a while")
	n.paused = w.n(20)
}

// restRounds is how many rounds without faults are enough for all to come to rest.
const restRounds = 60

// slowRounds is what a fabric without order adds: every request of an order waits for the one
// before it to arrive, and then for its group to grow.
const slowRounds = 340

// rest lets everything go on without faults until nothing is under way.
func (w *world) rest() {
	w.log("no more faults")
	w.calm = true
	for _, n := range w.nodes {
		n.paused = 0
		if n.armed != nil {
			n.armed.left = 0
			n.armed.unwatch()
			n.armed = nil
		}
	}
	for round := 0; !w.quiet(); round++ {
		w.step++
		if round == restRounds && !w.unordered || round == restRounds+slowRounds {
			if w.tracing {
				w.dump()
			}
			w.fail("no rest after %d rounds: %s", round, w.unrest())
		}
		for _, n := range w.nodes {
			n.linkAct()
			n.workersAct()
			n.cycle()
			n.serviceAct()
			n.clientAct()
		}
		for w.net.act() {
		}
		w.check()
	}
	w.finish()
}

// arena is the memory of a simulation, in pages that can be protected.
type arena struct {
	mem  []byte
	used int
}

const (
	pageSize  = 4096
	arenaSize = 24 << 20
)

func newArena() (*arena, error) {
	mem, err := unix.Mmap(-1, 0, arenaSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return &arena{mem: mem}, err
}

func (a *arena) close() error { return unix.Munmap(a.mem) }

func (a *arena) reset() {
	clear(a.mem[:a.used])
	a.used = 0
}

// alloc returns zeroed pages.
func (a *arena) alloc(n int) []byte {
	n = (n + pageSize - 1) &^ (pageSize - 1)
	if a.used+n > len(a.mem) {
		panic(simFailure("the simulation needs more memory than it has"))
	}
	mem := a.mem[a.used : a.used+n : a.used+n]
	a.used += n
	return mem
}

// pageOf returns the page with the byte at offset off of mem.
func pageOf(mem []byte, off int) []byte {
	off &^= pageSize - 1
	return mem[off : off+pageSize]
}

func protect(page []byte, prot int) {
	if err := unix.Mprotect(page, prot); err != nil {
		panic(err)
	}
}
