package attach_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// A worker tells a core that takes over what it has, asks it again what has no answer,
// and makes nothing of what it is sent twice.
func TestResumed(t *testing.T) {
	f := newFake(t)
	mem, other := newMemory(t, 8192), newMemory(t, 8192)
	before := leaktest.Descriptors(t)
	asked := make(chan struct{})
	var freed []attach.RegionInfo
	var have attach.Have
	region := func(index uint32) *attach.RegionInfo {
		return &attach.RegionInfo{Index: index, Generation: 1, Size: 8192}
	}
	done := f.script(func(c *attach.Conn) error {
		if err := errors.Join(f.welcome(c), f.lane(c, 1), f.lane(c, 7)); err != nil {
			return err
		}
		// The core before has taken three questions and answered one.
		questions := map[uint64]attach.Type{}
		for range 3 {
			m, _, err := c.Recv()
			if err != nil {
				return err
			}
			questions[m.Seq] = m.Type
			if m.Type == attach.TypePing {
				delete(questions, m.Seq)
				if err := c.Send(&attach.Message{Type: attach.TypePong, Seq: m.Seq}); err != nil {
					return err
				}
			}
		}
		close(asked)
		err := errors.Join(f.welcome(c), f.lane(c, 7), c.Send(&attach.Message{Type: attach.TypeResumed, Resumed: &attach.Resumed{OpsTaken: 5}}))
		if err != nil {
			return err
		}
		m, _, err := c.Recv()
		if err != nil || m.Type != attach.TypeHave || m.Have == nil {
			return fmt.Errorf("%+v instead of have, %w", m, err)
		}
		have = *m.Have
		for range 2 {
			m, _, err := c.Recv()
			if err != nil {
				return err
			}
			if questions[m.Seq] != m.Type {
				return fmt.Errorf("asked %+v, of %v", m, questions)
			}
			for n, seg := range []*shm.Segment{mem, other} { // each question has two answers
				if m.Type == attach.TypeAlloc {
					err = c.Send(&attach.Message{Type: attach.TypeRegion, Seq: m.Seq, Region: region(uint32(n + 1))}, seg.FD())
				} else {
					err = c.Send(&attach.Message{Type: attach.TypeResolved, Seq: m.Seq, Route: &attach.Route{Node: "n", Lanes: []uint16{1}}})
				}
				if err != nil {
					return err
				}
			}
		}
		// What it has is no news either.
		if err := c.Send(&attach.Message{Type: attach.TypeRegion, Seq: 1, Region: region(1)}, mem.FD()); err != nil {
			return err
		}
		for {
			m, _, err := c.Recv()
			if err != nil {
				return err
			}
			switch m.Type {
			case attach.TypeFree:
				freed = append(freed, *m.Region)
			case attach.TypeStatus:
				if err := c.Send(&attach.Message{Type: attach.TypeStatusIs, Seq: m.Seq}); err != nil {
					return err
				}
			case attach.TypeBye:
				return nil
			}
		}
	})
	var lanes []uint16
	resumed := make(chan attach.Resumed, 1)
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{
		Lane:    func(l attach.Lane, _ *slots.Ring) { lanes = append(lanes, l.ID) },
		Resumed: func(r attach.Resumed) { resumed <- r },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var r *attach.Region
	all.Go(func() {
		var err error
		if r, err = s.AllocRegion(ctx, 8192); err != nil {
			t.Errorf("alloc: %v", err)
		}
	})
	all.Go(func() {
		if a, err := s.Ask(ctx, &attach.Message{Type: attach.TypeResolve}); err != nil || a.Route == nil || a.Route.Node != "n" {
			t.Errorf("resolve: %+v, %v", a, err)
		}
	})
	if _, err := s.Ask(ctx, &attach.Message{Type: attach.TypePing}); err != nil {
		t.Errorf("ping: %v", err)
	}
	<-asked
	all.Wait()
	if got := <-resumed; got.OpsTaken != 5 {
		t.Errorf("resumed with %+v", got)
	}
	if _, err := s.Ask(ctx, &attach.Message{Type: attach.TypeStatus}); err != nil {
		t.Errorf("a question afterwards: %v", err)
	}
	if r == nil || r.ID() != slots.MakeRegionID(1, 1) {
		t.Errorf("region %+v", r)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if fmt.Sprint(have.Lanes) != "[1 7]" || len(have.Asking) != 2 || !have.AllRegions || len(have.Regions) != 0 {
		t.Errorf("it has %+v", have)
	}
	if fmt.Sprint(lanes) != "[1 7]" {
		t.Errorf("lanes %v", lanes)
	}
	if len(freed) != 1 || freed[0].Index != 2 {
		t.Errorf("freed %+v", freed)
	}
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// A region that two cores have not made, and may have died of, is not asked of a third: who wants it is told so. Other
// questions are asked of each.
func TestAllocOfTwoDeadCores(t *testing.T) {
	f := newFake(t)
	asked := make(chan struct{})
	var seen []string
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		receive := func(n int) error {
			var types []string
			for range n {
				m, _, err := c.Recv()
				if err != nil {
					return err
				}
				text := string(m.Type)
				if m.Have != nil {
					text = fmt.Sprint("have ", len(m.Have.Asking))
				}
				types = append(types, text)
				if len(seen) == 3 && m.Type == attach.TypeResolve {
					if err := c.Send(&attach.Message{Type: attach.TypeResolved, Seq: m.Seq, Route: &attach.Route{Node: "n"}}); err != nil {
						return err
					}
				}
			}
			slices.Sort(types)
			seen = append(seen, strings.Join(types, ", "))
			return nil
		}
		if err := receive(2); err != nil {
			return err
		}
		close(asked)
		for _, n := range []int{3, 2, 3} { // have and the questions, and at last the goodbye
			if err := c.Send(&attach.Message{Type: attach.TypeResumed, Resumed: &attach.Resumed{}}); err != nil {
				return err
			}
			if err := receive(n); err != nil {
				return err
			}
		}
		return nil
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	attach.Idle(&s.Pool) // which would make room, if it were for want of that
	all.Go(func() {
		if _, err := s.AllocRegion(ctx, 8192); !errors.Is(err, attach.ErrLimit) || !strings.Contains(err.Error(), "2 cores of the daemon have ended") || !strings.Contains(err.Error(), "8192 bytes") {
			t.Errorf("alloc: %v", err)
		}
	})
	all.Go(func() {
		if a, err := s.Ask(ctx, &attach.Message{Type: attach.TypeResolve}); err != nil || a.Route == nil {
			t.Errorf("resolve: %+v, %v", a, err)
		}
	})
	<-asked
	all.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := strings.Join(seen, "; "); got != "alloc, resolve; alloc, have 2, resolve; have 1, resolve; bye, have 1, resolve" {
		t.Errorf("the cores are told %s", got)
	}
}

// A connection that ends before the daemon has said anything is tried again; who is told
// no is not.
func TestOpenTriesAgain(t *testing.T) {
	f := newFake(t)
	done := make(chan error, 1)
	go func() {
		for range 2 {
			sock, err := f.listen.AcceptUnix()
			if err != nil {
				done <- err
				return
			}
			_ = attach.NewConn(sock).Close()
		}
		done <- <-f.script(f.welcome)
	}()
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-s.Done()
	if !errors.Is(s.Err(), attach.ErrClosed) {
		t.Error(s.Err())
	}
	s.Release()
	refused := f.script(func(c *attach.Conn) error {
		return c.Send(&attach.Message{Type: attach.TypeGoodbye, Reason: "stopping"})
	})
	if _, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{}); !errors.Is(err, attach.ErrClosed) {
		t.Error(err)
	}
	if err := <-refused; err != nil {
		t.Error(err)
	}
}
