package atomics

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/perftest"
)

// crowd is a tool whose client is several processes.
func crowd(clients, connections int) *Tool {
	return &Tool{Types: Types, Clients: clients, Connections: connections, Count: 50, Depth: 3}
}

func honest(int) perf.Tool { return new(Tool) }

// What processes count together is counted once, by whichever of them, and is reported as one.
func TestCrowd(t *testing.T) {
	for _, connections := range []int{1, 2} {
		for _, event := range []bool{false, true} {
			ask := crowd(3, connections)
			ask.Event = event
			c, s, members := perftest.Crowd(t, tcp.New(tcp.Config{}), ask, new(Tool), honest)
			if err := errors.Join(append(members, c.Err, s.Err)...); err != nil {
				t.Fatal(err)
			}
			total := uint64(50 * 3 * connections)
			for _, row := range c.Result.(*Result).Results {
				if row.Clients != 3 || row.Connections != connections || row.Increments != total || row.Final != start+total ||
					row.Iterations != total+row.Failed || row.Samples.Count() != row.Iterations || row.Latency == nil || row.MsgRate <= 0 {
					t.Errorf("%+v", row)
				}
			}
			if i := c.Result.(*Result).Info; i.Client.Provider != "tcp" || i.Server.Address == "" || !i.Verified {
				t.Errorf("%+v", i)
			}
		}
	}
}

// twice is a member that says of a value that it has found it, which another has found.
type twice struct{ *Tool }

func (w *twice) Run(ctx context.Context, s *perf.Session) (any, error) {
	if err := s.Barrier(ctx); err != nil {
		return nil, err
	}
	c, err := w.count(ctx, s, w.Types[0])
	if err != nil {
		return nil, err
	}
	for i := range c.tickets.total {
		// It has found all.
		c.tickets.given[i/64] |= 1 << (i % 64)
	}
	if err := perf.SendLong(ctx, s.Link, c.tally()); err != nil {
		return nil, err
	}
	return nil, s.Barrier(ctx)
}

// One process alone may see nothing wrong with what it has found: together they do.
func TestCrowdNotAtomic(t *testing.T) {
	c, s, members := perftest.Crowd(t, tcp.New(tcp.Config{}), crowd(3, 1), new(Tool), func(i int) perf.Tool {
		if i == 2 {
			return &twice{new(Tool)}
		}
		return new(Tool)
	})
	var wrong *AtomicityError
	if !errors.As(c.Err, &wrong) || !strings.Contains(c.Err.Error(), "client 2") || !strings.Contains(c.Err.Error(), "two increments") {
		t.Errorf("%v", c.Err)
	}
	if s.Err == nil || errors.Join(members...) == nil {
		t.Errorf("server: %v, members: %v", s.Err, members)
	}
}

// gone is a member that ends in the middle.
type gone struct{ *Tool }

var errGone = errors.New("enough")

func (g *gone) Run(context.Context, *perf.Session) (any, error) { return nil, errGone }

// A member that ends is told of by all others.
func TestMemberGone(t *testing.T) {
	c, s, members := perftest.Crowd(t, tcp.New(tcp.Config{}), crowd(3, 1), new(Tool), func(i int) perf.Tool {
		if i == 2 {
			return &gone{new(Tool)}
		}
		return new(Tool)
	})
	if c.Err == nil || !strings.Contains(c.Err.Error(), errGone.Error()) || perf.IsInput(c.Err) {
		t.Errorf("leader: %v", c.Err)
	}
	for i, err := range append(members, s.Err) {
		if err == nil {
			t.Errorf("member or server %d: it has not learned of it", i)
		}
	}
}

// One that is asked for what its device cannot do is no crowd.
func TestCrowdRefused(t *testing.T) {
	c, s, members := perftest.Crowd(t, plain{tcp.New(tcp.Config{})}, crowd(2, 1), new(Tool), honest)
	if !perf.IsInput(c.Err) || !perf.IsInput(s.Err) || len(members) != 0 || !strings.Contains(c.Err.Error(), "no atomic operations") {
		t.Errorf("leader: %v, server: %v, members: %v", c.Err, s.Err, members)
	}
}

// What a process says that is none of this run's is refused.
func TestMerge(t *testing.T) {
	a, b := newTickets(100), newTickets(100)
	if err := errors.Join(a.take(start), a.take(start+70), b.take(start+1)); err != nil {
		t.Fatal(err)
	}
	all := newTickets(100)
	if err := errors.Join(all.merge(a.bytes()), all.merge(b.bytes())); err != nil || all.count != 3 {
		t.Errorf("%d, %v", all.count, err)
	}
	if err := all.merge(a.bytes()); err == nil || !strings.Contains(err.Error(), "have found 4294967288") {
		t.Errorf("a value that was found twice: %v", err)
	}
	for _, size := range []int{0, 8, 15, 17} {
		if newTickets(100).merge(make([]byte, size)) == nil {
			t.Errorf("%d bytes for 100 values", size)
		}
	}
	over := newTickets(100)
	over.given[1] |= 1 << 63
	if newTickets(100).merge(over.bytes()) == nil {
		t.Error("a value that the counter cannot have had")
	}
}
