//go:build faultpoints

package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// A core dies at a step: everything of its own memory is lost at that instant, and
// another one takes over what is in the rings and the vault.

// crash is what the agent panics with at the step where its core dies.
type crash struct{}

// crashWorld is a lane whose cores may die at any step: a local one, or one between two
// nodes.
type crashWorld struct {
	t *testing.T
	// net is the fabric between the nodes; nil for a local lane.
	net fabric.Provider
	// ring and journal are the callers' end, mirror and records the other.
	ring, mirror     *slots.Ring
	journal, records *vault.Vault
	// near is the callers' node, far the service's; of a local lane the same.
	near, far *side
	out       *OutLane
	in        *InLane
	tag       uint64 // of the last endpoint
	service   *rigWorker
	// lives and dies are callers.
	lives, dies *rigWorker
	buried      bool
	calls       []*rigCall
	sent        int
	// executed counts by seed, which each request has of its own; picked is a request
	// whose handler runs for long.
	executed map[byte]int
	picked   *slots.Run
	// inside: a core runs, not a worker.
	inside  bool
	crashes int
}

// The attach ids of the callers.
const (
	crashLives = 7
	crashDies  = 9
)

func newCrashWorld(t *testing.T, net fabric.Provider) *crashWorld {
	w := &crashWorld{t: t, net: net, ring: newRing(t), journal: newVault(t), executed: map[byte]int{}}
	w.mirror, w.records = w.ring, w.journal
	if net == nil {
		w.startLocal()
		return w
	}
	w.mirror, w.records = newRing(t), newVault(t)
	w.startNear()
	w.startFar()
	w.connect()
	return w
}

// device opens a device for a new core.
func (w *crashWorld) device() fabric.Device {
	if w.net == nil {
		return nil
	}
	dev, err := w.net.Open(fabric.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return dev
}

// addCallers is what a new core of the callers' node knows of them.
func (w *crashWorld) addCallers() {
	w.lives = w.near.addWorker(crashLives)
	if !w.buried {
		w.dies = w.near.addWorker(crashDies)
	}
	w.out = NewOutLane(w.near.d, rigLane, w.ring, w.journal, 16)
	w.near.d.AddOut(w.out)
}

// addServices is the same for the service's node.
func (w *crashWorld) addServices() {
	w.service = w.far.addService()
	w.in = NewInLane(w.far.d, rigLane, w.mirror, w.records, 16)
	w.far.d.AddIn(w.in)
}

// startLocal starts a core: the first, or one that adopts what the last has left.
func (w *crashWorld) startLocal() {
	w.near = newSide(w.t, nil)
	w.far = w.near
	w.addCallers()
	w.addServices()
	w.out.Local, w.in.Local = w.in, w.out
	w.out.Adopt()
	w.far.d.DispatchAdopted(w.in.Adopt())
	w.out.Rejoin()
	w.near.d.Resume()
}

// startNear and startFar do it for the nodes of a lane between two.
func (w *crashWorld) startNear() {
	w.near = newSide(w.t, w.device())
	w.addCallers()
	w.out.Adopt()
	w.near.d.Resume()
}

func (w *crashWorld) startFar() {
	w.far = newSide(w.t, w.device())
	w.addServices()
	w.far.d.DispatchAdopted(w.in.Adopt())
	w.far.d.Resume()
}

// connect opens the lane between the nodes, or opens it again.
func (w *crashWorld) connect() {
	w.tag += 2
	reconnect(w.t, w.near, w.far, w.out, w.in, w.tag)
}

// core runs f, what the core of a node does. After a crash another core does it.
func (w *crashWorld) core(near bool, f func()) {
	for w.dead(f) {
		w.crashes++
		w.recover(near)
	}
	w.out.check(w.t)
	w.in.check(w.t)
}

// recover replaces the core of a node, and the connection of both, as often as it takes.
func (w *crashWorld) recover(near bool) {
	if w.net == nil {
		for w.dead(w.startLocal) {
			w.crashes++
		}
		return
	}
	for {
		// The kernel closes what the dead core had open.
		end, start := &w.in.End, w.startFar
		s := w.far
		if near {
			end, start, s = &w.out.End, w.startNear, w.near
		}
		if *end != nil {
			(*end).close(s.a)
			*end = nil
		}
		if !w.dead(start) {
			near = true // posts again what was not seen
			if !w.dead(w.connect) {
				return
			}
		}
		w.crashes++
	}
}

// dead runs f and reports whether the core died in it.
func (w *crashWorld) dead(f func()) (died bool) {
	w.inside = true
	defer func() {
		w.inside = false
		if p := recover(); p != nil {
			if p != (crash{}) {
				panic(p)
			}
			died = true
		}
	}()
	f()
	return false
}

// cycle lets the cores do what there is to do.
func (w *crashWorld) cycle() {
	for idle, cycles := 0, 0; idle < 3; idle, cycles = idle+1, cycles+1 {
		if cycles == 1000 {
			w.t.Fatal("the cores find no rest")
		}
		work := 0
		turn := func(s **side) func() {
			return func() {
				work += (*s).a.cycle()
				(*s).a.rescan()
			}
		}
		w.service.rings.Down.PrepareSleep()
		w.core(true, turn(&w.near))
		w.service.rings.Down.PrepareSleep()
		w.core(false, turn(&w.far))
		if work > 0 {
			idle = -1
		}
	}
}

func (w *crashWorld) send(from *rigWorker, n int, post bool) {
	w.t.Helper()
	c := w.near.send(from, w.ring, n, post, byte(2*w.sent))
	if c == nil {
		w.t.Fatal("no room")
	}
	w.sent++
	w.calls = append(w.calls, c)
}

// pick starts the handler of the next request, finish ends it.
func (w *crashWorld) pick() *slots.Run {
	for {
		h, ok := w.service.rings.Down.Pop()
		if !ok {
			return nil
		}
		if u, ok := w.mirror.PickHinted(h, w.service.id); ok {
			w.executed[w.mirror.Payload(u)[0]]++
			return &u
		}
	}
}

func (w *crashWorld) finish(u *slots.Run) {
	var q slots.Header
	if !q.Decode(w.mirror.Header(*u)) {
		w.t.Fatal("a damaged request")
	}
	for i := range w.mirror.Payload(*u)[:q.Length] {
		w.mirror.Payload(*u)[i]++
	}
	h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer, Length: q.Length}
	h.Encode(w.mirror.Header(*u))
	if !w.mirror.Finish(*u, w.service.id) {
		w.t.Fatal("a picked request is another's")
	}
	w.service.rings.Up.Push(slots.MakeHint(rigLane, u.Index, u.Ticket))
	w.far.bells.MarkWorker(w.service.id)
}

// serve handles up to n requests.
func (w *crashWorld) serve(n int) {
	for range n {
		u := w.pick()
		if u == nil {
			return
		}
		w.finish(u)
	}
}

// take takes the answers that are there.
func (w *crashWorld) take() {
	w.calls = slices.DeleteFunc(w.calls, func(c *rigCall) bool {
		return c.w.id == crashLives && !c.post && c.answered(w.t, 0)
	})
}

// live is a little of everything.
func (w *crashWorld) live() {
	for i := range 6 {
		w.send(w.lives, 40+60*(i%3), false)
	}
	w.send(w.lives, 100, true)
	w.send(w.dies, 100, false)
	w.cycle()
	w.serve(3)
	w.picked = w.pick()
	w.cycle()
	w.serve(2)
	w.send(w.lives, 150, false)
	w.send(w.dies, 10, false) // never seen before its death
	if _, err := w.ring.Claim(crashDies, 3); err != nil {
		w.t.Fatal(err)
	}
	w.core(true, func() { w.near.bury(w.dies) })
	w.buried = true
	w.take()
	for range 3 {
		w.send(w.lives, 10, true)
		w.send(w.lives, 200, false)
	}
	w.cycle()
	w.serve(100)
	w.cycle()
	if w.picked != nil {
		w.finish(w.picked)
	}
	// What the last core was about to tell is found by looking.
	for range 3 {
		w.cycle()
		w.serve(100)
	}
	w.take()
}

// check looks at what is left in the end.
func (w *crashWorld) check() {
	for _, c := range w.calls {
		if c.w.id == crashLives && !c.post {
			w.t.Errorf("slot %d has no answer: %v", c.u.Index, w.ring.Word(c.u.Index))
		}
	}
	for seed, n := range w.executed {
		if n != 1 {
			w.t.Errorf("the request with seed %d was executed %d times", seed, n)
		}
	}
	w.out.idle(w.t)
	w.in.idle(w.t)
	allFree(w.t, w.ring, 0)
	for i := range rigGeometry.Slots {
		if e := w.journal.Journal.Load(i); e.State != vault.EntryNone {
			w.t.Errorf("slot %d: the journal has %+v", i, e)
		}
	}
}

// crashPassages is more than a core makes of any step in its life here.
const crashPassages = 100

// A core dies at every passage of every step that it comes to, and the next one at the
// same step again while it takes over.
func TestCrashAtEveryStep(t *testing.T) {
	hit := map[string]bool{}
	filtered := false // by -run
	for name, net := range map[string]func() fabric.Provider{
		"local":   func() fabric.Provider { return nil },
		"between": func() fabric.Provider { return fabrictest.NewFake() },
	} {
		t.Run(name, func(t *testing.T) {
			deaths := 0
			for _, p := range faultpoint.Points {
				for n := 1; n <= crashPassages && !t.Failed(); n++ {
					ran, died := false, false
					t.Run(fmt.Sprintf("%s:%d", p.Name, n), func(t *testing.T) {
						ran = true
						w := newCrashWorld(t, net())
						died = w.crashAt(p.Name, n)
						deaths += w.crashes
					})
					filtered = filtered || !ran
					hit[p.Name] = hit[p.Name] || died
					if ran && !died {
						break
					}
					if died && n == crashPassages {
						t.Errorf("more than %d passages of %s", n, p.Name)
					}
				}
			}
			t.Logf("%d deaths", deaths)
		})
	}
	for _, p := range faultpoint.Points {
		if p.Role == faultpoint.Core && !hit[p.Name] && !filtered {
			t.Errorf("no core died at %s", p.Name)
		}
	}
}

// crashAt lives with a core that dies at the n-th passage of a point, and reports whether
// it came there.
func (w *crashWorld) crashAt(point string, n int) (died bool) {
	arm := func() {
		if err := faultpoint.Arm(""); err != nil {
			w.t.Fatal(err)
		}
	}
	arm()
	defer arm()
	var fall func()
	fall = func() {
		if !w.inside {
			faultpoint.Do(point, 1, fall) // a worker came there, which lives
			return
		}
		if !died {
			faultpoint.Do(point, 1, fall) // and the next core, too
		}
		died = true
		panic(crash{})
	}
	faultpoint.Do(point, n, fall)
	w.live()
	w.check()
	if w.net != nil {
		w.out.Suspend()
		w.in.Suspend()
	}
	return died
}
