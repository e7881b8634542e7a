//go:build faultpoints

package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// crew is a service on each of two nodes, with callers of both at both, that work until
// they are told to stop. None of them may notice what becomes of the cores, but by the
// time that it takes.
type crew struct {
	nodes []*daemontest.Node
	quit  chan struct{}
	// all are the callers, served the services.
	all, served sync.WaitGroup
	ids         atomic.Uint64
	hands       []*hand
	serve       []*server.Server
	// refused counts attachments that a core's death has ended before they were any.
	refused atomic.Int64

	mu       sync.Mutex
	ended    outcomes
	posted   map[uint64]bool // accepted one-way messages
	executed map[uint64]int
	orders   map[uint64]uint64 // the last request of each order
	problems []string
}

// hand is one of those who make requests.
type hand struct {
	name   string
	rounds atomic.Int64
}

// problem notes what should not have happened.
func (c *crew) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) < 20 {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// newCrew starts a crew and waits until all of it works.
func newCrew(t *testing.T, nodes ...*daemontest.Node) *crew {
	c := &crew{
		nodes: nodes, quit: make(chan struct{}),
		ended: outcomes{}, posted: map[uint64]bool{}, executed: map[uint64]int{}, orders: map[uint64]uint64{},
	}
	t.Cleanup(func() { c.stop(t) })
	for _, n := range nodes {
		c.offer(t, n)
	}
	for _, home := range nodes {
		for _, there := range nodes {
			c.hire(t, home, there.Name)
		}
	}
	c.flows(t, 1)
	return c
}

// hire attaches a process's worth of callers at a node, for the services of another, or
// of the same.
func (c *crew) hire(t *testing.T, home *daemontest.Node, to string) {
	conn, err := client.Attach(t.Context(), home.Socket)
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]*client.Method{}
	for _, name := range []string{"do", "echo", "seq", "fill"} {
		daemontest.Eventually(t, "the services are known", func() (err error) {
			methods[name], err = conn.Method(t.Context(), to+"/t/"+name)
			return err
		})
	}
	region, err := conn.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	// Where others wait, they take in all answers.
	idler, err := client.Attach(t.Context(), home.Socket)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := idler.Method(t.Context(), to+"/t/do")
	if err != nil {
		t.Fatal(err)
	}
	var busy sync.WaitGroup
	work := func(name string, f func(ctx context.Context, n int)) {
		h := &hand{name: fmt.Sprintf("%s from %s to %s", name, home.Name, to)}
		c.hands = append(c.hands, h)
		busy.Go(func() {
			for n := 1; !c.over(); n++ {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				f(ctx, n)
				cancel()
				h.rounds.Add(1)
				time.Sleep(200 * time.Microsecond) // leaves processors to the cores
			}
		})
	}
	work("calls", func(ctx context.Context, n int) { c.calls(ctx, methods["do"], n) })
	work("bursts", func(ctx context.Context, n int) { c.burst(ctx, methods["do"], n) })
	key := c.ids.Add(1)
	ordered := methods["seq"].With(client.Ordered(key))
	work("orders", func(ctx context.Context, n int) { c.ordered(ctx, ordered, key) })
	work("large messages", func(ctx context.Context, n int) { c.large(ctx, methods["echo"], n) })
	work("regions", func(ctx context.Context, n int) { c.fill(ctx, methods["fill"], region) })
	work("idlers", func(ctx context.Context, n int) { c.idle(ctx, alone) })
	work("newcomers", func(ctx context.Context, n int) { c.newcomer(ctx, home, to) })
	c.all.Go(func() {
		busy.Wait()
		if err := errors.Join(conn.Close(), idler.Close()); err != nil {
			c.problem("close of a caller: %v", err)
		}
	})
	c.all.Go(func() {
		select {
		case <-conn.Done():
			if !c.over() {
				c.problem("a caller's session at %s has ended", home.Name)
			}
		case <-c.quit:
		}
	})
}

// over reports whether the crew is to stop.
func (c *crew) over() bool {
	select {
	case <-c.quit:
		return true
	default:
		return false
	}
}

// stop ends the crew, once what is under way has its outcome.
func (c *crew) stop(t *testing.T) {
	if c.over() {
		return
	}
	close(c.quit)
	c.all.Wait()
	for _, s := range c.serve {
		if err := s.Close(); err != nil {
			t.Errorf("close of a service: %v", err)
		}
	}
	c.served.Wait()
}

// flows waits until everybody has done n rounds more, and returns how long that took.
func (c *crew) flows(t *testing.T, n int64) time.Duration {
	t.Helper()
	start := time.Now()
	from := make([]int64, len(c.hands))
	for i, h := range c.hands {
		from[i] = h.rounds.Load()
	}
	daemontest.Eventually(t, "everybody goes on", func() error {
		var idle []string
		for i, h := range c.hands {
			// One round may be of before.
			if h.rounds.Load()-from[i] < n+1 {
				idle = append(idle, h.name)
			}
		}
		if len(idle) > 0 {
			return fmt.Errorf("not %q", idle)
		}
		return nil
	})
	return time.Since(start)
}

// judge checks what the crew has seen, after stop: every request was answered, and
// executed once.
func (c *crew) judge(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.problems {
		t.Error(p)
	}
	ways := map[string]int{}
	for id, how := range c.ended {
		ways[how]++
		if how != "answered" && how != "lost operation" {
			t.Errorf("request %#x ended as %s although only cores died", id, how)
		}
	}
	for id := range c.posted {
		ways["posted"]++
		if n := c.executed[id]; n != 1 {
			t.Errorf("message %#x was executed %d times although only cores died", id, n)
		}
	}
	for id, how := range c.ended {
		if n := c.executed[id]; n != 1 {
			t.Errorf("request %#x ended as %s, and was executed %d times", id, how, n)
		}
	}
	t.Logf("requests ended as %v, %d newcomers had to try again", ways, c.refused.Load())
}

// rounds returns the crew's work so far, by who does it.
func (c *crew) rounds() (all []string) {
	for _, h := range c.hands {
		all = append(all, fmt.Sprintf("%s: %d", h.name, h.rounds.Load()))
	}
	slices.Sort(all)
	return all
}

var errWrong = errors.New("the answer is another's")
