package agent

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// Agent moves the messages of its domains on a thread of its own. Once it has been started all fields
// belong to that thread, but for Name, Commands, Poll, CQs and Asleep, which any goroutine may use.
type Agent struct {
	Name string
	// Processor is the one that it keeps to, or NoProcessor.
	Processor int
	log       zerolog.Logger
	// GroupMax is how many messages a group has at most.
	GroupMax int
	delay    delaying

	// life counts the goroutines that run it, one after the other.
	life *sync.WaitGroup
	// Commands are how other goroutines reach what belongs to the thread.
	Commands *CommandQueue
	Poll     *poller.Poller
	CQs      []fabric.CQ // by the number of the fabric; none without one
	comps    []fabric.Completion
	Domains  []*Domain
	Wakes    *shm.Wakes
	// wary is for how many times more the agent takes its own time while it wakes others, and timed for how many pages.
	wary, timed int
	// ends are the ends of connections by the tag of their endpoint.
	ends map[uint64]connectionEnd

	// tally is what the agent counts, and Count its plain counters; the daemon's file of
	// counters has them.
	tally  *counters.Agent
	Count  *counters.AgentCounts
	Deaths Deaths
	// company are those who would wait behind large operations.
	company company
	// Stop makes the thread end after the cycle.
	Stop bool
	// Idle says what it does when there is nothing to do. During and between are whether it is worth to poll
	// for a while, with requests under way and without, and linger whether it is to stay awake while others run.
	// Found is look, and anew again, made once so that no cycle makes a closure.
	Idle            IdleStrategy
	during, between shm.Poll
	linger          shm.Linger
	found, anew     func() bool
	// now is when the cycle began, by CLOCK_MONOTONIC, and stamp what journals and records
	// note of it. awake: there was no sleep since the cycle before.
	now   int64
	stamp uint32
	awake bool
	// unarmed: of a completion queue nobody would wake it. told are those of which that was said.
	unarmed bool
	told    []bool
	// Asleep: it sleeps until somebody wakes it; for others to know.
	Asleep atomic.Bool
}

// connectionEnd is who completions are for, found by the tag of their endpoint: an out lane, an in lane, or an end of
// a connection for regions.
type connectionEnd interface {
	// immediate handles a group that arrived.
	immediate(imm uint32)
	// violation ends what has a peer that breaks the protocol.
	violation(what string)
	// sent notes that work requests up to id are complete, and reports whether that
	// made something else possible.
	sent(id uint64) bool
	// broken notes the end of the connection.
	broken(c *fabric.Completion)
}

// cqDepth bounds the completions of all lanes of an agent that wait to be polled.
const cqDepth = 16 << 10

// New makes an agent that uses the given devices; Start starts it.
func New(name string, idle IdleStrategy, groupMax int, devs []fabric.Device, log zerolog.Logger) (*Agent, error) {
	p, err := poller.New()
	if err != nil {
		return nil, err
	}
	q, err := newCommandQueue()
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	a := &Agent{
		Name: name, Processor: NoProcessor, log: log, Idle: idle, GroupMax: groupMax, Commands: q, Poll: p,
		comps: make([]fabric.Completion, 256), ends: make(map[uint64]connectionEnd), Wakes: new(shm.Wakes),
	}
	a.found, a.anew = a.look, a.again
	a.CountIn(counters.NewAgent())
	a.tick()
	if err := a.Watch(q.bell); err != nil {
		a.Release()
		return nil, err
	}
	for _, dev := range devs {
		cq, err := dev.CreateCQ(cqDepth, p)
		if err != nil {
			a.Release()
			return nil, fmt.Errorf("agent %s: completion queue: %w", name, err)
		}
		a.CQs = append(a.CQs, cq)
	}
	return a, nil
}

// Ready is called by the poller when a bell rang. Bells are registered edge
// triggered: a new ring makes a new event, so they need not be read.
func (a *Agent) Ready(int, uint32) {}

// Watch makes the agent wake up when b rings. Any goroutine may call it.
func (a *Agent) Watch(b *shm.Bell) error { return a.Poll.Add(b.FD(), unix.EPOLLIN|unix.EPOLLET, a) }

// Start starts the agent. Life is done when it has ended.
func (a *Agent) Start(life *sync.WaitGroup) {
	a.life = life
	life.Go(a.run)
}

const (
	// lookEvery is at which busy cycle an agent looks for events, which costs a system call: at every third.
	lookEvery = 3
	// lingerLookEvery is the same for cycles in which it lingers.
	lingerLookEvery = 16
)

// run is the agent's thread. It returns after a command has set Stop.
func (a *Agent) run() {
	runtime.LockOSThread()
	shm.SetThreadName("rdmad-" + a.Name)
	a.settle()
	for worked, lingered, yielded := 0, 0, int64(0); !a.Stop; {
		woken := a.Count.Wakes
		if a.cycle() > 0 {
			// When threads wait for this processor, they are mostly those that
			// have just been given work: what they make of it joins the next
			// cycle's groups, often without a sleep in between. Where some of it is
			// there already they have had the processor: the kernel mostly
			// lets a thread that is woken run at once.
			if (a.Count.Wakes == woken || !a.marked()) && !a.handling() {
				yielded = shm.Nanotime()
				shm.Yield()
				a.glance()
			}
			// Not at every busy cycle: the first cycle after a wake-up mostly
			// finds nothing more and goes to sleep, which looks for events
			// anyway.
			if worked++; worked%lookEvery == 0 {
				a.wait(0)
			}
			continue
		}
		// The cycle has begun with a look at the clock, after the yield.
		if worked > 0 && a.now-yielded >= shm.OthersRan && a.lingers() {
			// What it waited for came without an event. Others may have come with one.
			if lingered++; lingered%lingerLookEvery == 0 {
				a.wait(0)
			}
			continue
		}
		if worked > 0 && a.spins() {
			yielded = shm.Nanotime() // nobody has had the processor since: not worth to linger
			continue
		}
		worked = 0
		a.rest()
	}
	a.Commands.close()
	a.tally.Become(counters.AgentEnded)
	a.Release()
}

// Release gives up what the agent has of the system, of one that does not run any more.
func (a *Agent) Release() {
	if a.delay.timer != nil {
		_ = a.delay.timer.Close()
	}
	for _, cq := range a.CQs {
		_ = cq.Close()
	}
	_ = a.Wakes.Close()
	_ = a.Poll.Close()
	_ = a.Commands.bell.Close()
}

// cycle is one turn of duty. It returns how much there was to do.
func (a *Agent) cycle() int {
	a.begin()
	work := a.Commands.run()
	work += a.completions()
	for _, d := range a.Domains {
		work += d.cycle()
	}
	a.company.look(a.now)
	return work
}

// completionBatches bounds how long completions can keep an agent from its
// other duties in one cycle, in batches of len(comps).
const completionBatches = 16

// completions deals with what the completion queues have, and returns how much of it was
// work.
func (a *Agent) completions() (total int) {
	found := 0
	for _, cq := range a.CQs {
		n, busy := a.completionsOf(cq)
		found += n
		total += busy
	}
	a.Count.Completions += uint64(found)
	a.Count.CompletionDepth = uint64(found)
	return total
}

// completionsOf does so for one queue, and returns how many completions it has found.
func (a *Agent) completionsOf(cq fabric.CQ) (found, total int) {
	for range completionBatches {
		n, err := cq.Poll(a.comps)
		if err != nil {
			event.CQFailed.On(&a.log).Err(err).Msg("completion queue failed")
		}
		found += n
		for i := range a.comps[:n] {
			if a.completion(&a.comps[i]) {
				total++
			}
		}
		if n < len(a.comps) {
			break
		}
	}
	return found, total
}

// completion hands a completion to its lane. It reports whether there was something to do:
// that a group has gone out mostly changes nothing, and is no reason to stay awake.
func (a *Agent) completion(c *fabric.Completion) bool {
	if c.Status != fabric.StatusSuccess {
		*completionErrors(a.Count, c.Status)++
	}
	e := a.ends[c.Tag]
	if e == nil {
		return true // flushed work of a lane that was closed before
	}
	switch {
	case c.Op == fabric.OpDisconnect || c.Status != fabric.StatusSuccess:
		e.broken(c)
	case c.Op == fabric.OpRecvImm:
		e.immediate(c.Imm)
	case c.Op == fabric.OpRecv:
		e.violation("a message without a group") // it has used up a receive that a group needs
	default:
		return e.sent(c.ID)
	}
	return true
}
