package perf

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
)

const kindDone = "done"

// slowCrowd is a tool whose members do their parts, and come to a barrier, and do that again and say so: the
// leader takes all of that in their order.
type slowCrowd struct{ members int }

func (*slowCrowd) Name() string                               { return "slow" }
func (*slowCrowd) Check(fabric.Caps) error                    { return nil }
func (*slowCrowd) Plan(fabric.Role) Plan                      { return Plan{} }
func (*slowCrowd) Run(context.Context, *Session) (any, error) { return nil, nil }
func (c *slowCrowd) Members() int                             { return c.members }

func (*slowCrowd) Lead(ctx context.Context, d *Lead) (any, error) {
	if err := d.Barrier(ctx, false); err != nil {
		return nil, err
	}
	for _, l := range d.Members {
		if err := l.Receive(ctx, kindDone, &nothing{}); err != nil {
			return nil, err
		}
	}
	d.Ending()
	if err := d.Server.Send(kindDone, nothing{}); err != nil {
		return nil, err
	}
	return nil, errors.Join(d.Server.Receive(ctx, kindDone, &nothing{}), d.Barrier(ctx, false))
}

// follows is what the server and a member do until they are connected.
func follows(ctx context.Context, l *link.Link) error {
	var asked, theirs any
	return errors.Join(l.Receive(ctx, kindSpec, &asked), l.Send(kindAccept, nothing{}),
		l.Send(kindEndpoint, offer{Addresses: [][]byte{nil}}), l.Receive(ctx, kindEndpoint, &theirs),
		l.Send(kindUsed, Used{}), l.Receive(ctx, kindUsed, &theirs))
}

// mustered is how a crowd ends whose members start after the given time each, and then work.
func mustered(t *testing.T, count int, starting time.Duration, work func(i int, l *link.Link) error) (members []error, server, leader error) {
	t.Helper()
	src := Source{Name: "none", Version: "test"}
	tool := &slowCrowd{members: count}
	answer := func(conn net.Conn, suffix string) (*link.Link, error) {
		g := src.greeting(tool)
		g.Tool += suffix
		return link.Answer(t.Context(), conn, g)
	}
	served := make(chan error, 1)
	ours, theirs := net.Pipe()
	go func() {
		l, err := answer(theirs, "")
		if err == nil {
			var spec any
			// As the server's endpoints are those of all members.
			err = errors.Join(l.Receive(t.Context(), kindSpec, &spec), l.Send(kindAccept, nothing{}), l.Receive(t.Context(), kindEndpoint, &spec),
				l.Send(kindEndpoint, offer{Addresses: make([][]byte, count)}), l.Receive(t.Context(), kindUsed, &spec), l.Send(kindUsed, Used{}))
		}
		if err == nil {
			err = errors.Join(l.Receive(t.Context(), kindDone, &nothing{}), l.Send(kindDone, nothing{}))
		}
		served <- finish(l, err)
	}()
	ended := make(chan error, count)
	started := 0
	start := func(context.Context) (net.Conn, error) {
		time.Sleep(starting)
		ours, theirs := net.Pipe()
		i := started
		started++
		go func() {
			l, err := answer(theirs, memberName)
			if err == nil {
				err = follows(t.Context(), l)
			}
			s := &Session{Link: l}
			for _, part := range []func() error{
				func() error { return work(i, l) },
				func() error { return s.Barrier(t.Context()) },
				func() error { return work(i, l) },
				func() error { return l.Send(kindDone, nothing{}) },
				func() error { return s.Barrier(t.Context()) },
			} {
				if err == nil {
					err = part()
				}
			}
			ended <- finish(l, err)
		}()
		return ours, nil
	}
	l, err := link.Greet(t.Context(), ours, src.greeting(tool))
	if err != nil {
		t.Fatal(err)
	}
	_, leader = muster(t.Context(), src, &Lead{Server: l}, tool, start, nil)
	leader = finish(l, leader)
	for range started {
		members = append(members, <-ended)
	}
	return members, <-served, leader
}

// busy is at work for a while, and says so.
func busy(l *link.Link, d time.Duration) error {
	for begun := time.Now(); time.Since(begun) < d; {
		time.Sleep(time.Duration(atWork))
		if err := l.Alive(); err != nil {
			return err
		}
	}
	return nil
}

// Members and the server wait for those that take longer, to start or to do their part, for as long as these are at it.
func TestSlowMembers(t *testing.T) {
	for name, c := range map[string]struct {
		starting time.Duration
		work     func(i int, l *link.Link) error
	}{
		"many starts":         {musterTime - time.Second, func(int, *link.Link) error { return nil }},
		"the first is slow":   {0, func(i int, l *link.Link) error { return busy(l, time.Duration(4-i)*2*Stall) }},
		"the last is slow":    {0, func(i int, l *link.Link) error { return busy(l, time.Duration(i)*2*Stall) }},
		"all take their time": {0, func(_ int, l *link.Link) error { return busy(l, 3*Stall) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				members, server, leader := mustered(t, 4, c.starting, c.work)
				if err := errors.Join(append(members, leader, server)...); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A member that lives and does nothing ends the run, also while the leader waits for another one that is at work.
func TestSilentMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		members, server, leader := mustered(t, 3, 0, func(i int, l *link.Link) error {
			if i == 0 {
				return busy(l, 10*Stall)
			}
			if i == 2 {
				<-l.Context().Done()
				return l.Err()
			}
			return nil
		})
		if !errors.Is(leader, link.ErrSilent) || !strings.Contains(leader.Error(), "client 2") {
			t.Errorf("%v", leader)
		}
		if took := time.Since(begun); took < Stall || took > 2*Stall {
			t.Errorf("it took %v", took)
		}
		for _, err := range append(members, server) {
			if err == nil || !strings.Contains(err.Error(), "client 2") {
				t.Errorf("another one is told: %v", err)
			}
		}
	})
}
