package attach_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

// waitEnds checks that a wait for pages ends, with an error or without.
func waitEnds(t *testing.T, what string, p *shm.Pages, failed bool) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err := <-ended:
		if (err != nil) != failed {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s: the wait does not end", what)
	}
}

// A session has the pages of the core that it is attached to: those of the core before end,
// and who has slept without any since then is woken. The end of the session ends them all.
func TestPagesOfCores(t *testing.T) {
	f := newFake(t)
	before := leaktest.Descriptors(t)
	first, firstEnd, err := shm.NewPager()
	if err != nil {
		t.Fatal(err)
	}
	second, secondEnd, err := shm.NewPager()
	if err != nil {
		t.Fatal(err)
	}
	takeover, end := make(chan struct{}), make(chan struct{})
	done := f.script(func(c *attach.Conn) error {
		err := c.Send(&attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: shm.ABIVersion, ID: 1}},
			f.segs[shm.KindDomain].FD(), f.segs[shm.KindWorker].FD(), f.bell.FD(), firstEnd)
		<-takeover
		err = errors.Join(err, c.Send(&attach.Message{Type: attach.TypeResumed, Resumed: &attach.Resumed{}}, secondEnd))
		shm.CloseFDs([]int{firstEnd, secondEnd})
		<-end
		return err
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	old := s.Pages()
	if old == nil {
		t.Fatal("a session without the pages that it was given")
	}
	first.Page()
	waitEnds(t, "a page", old, false)
	s.Wake()
	waitEnds(t, "the process's own wake-up", old, false)
	old.Listen()
	_ = first.Close()
	bell := s.Rings.Down.Bell().Load()
	close(takeover)
	daemontest.Eventually(t, "the pages of another core", func() error {
		if s.Pages() == old || s.Rings.Down.Bell().Load() == bell {
			return errors.New("still those of the last one, or nobody was woken")
		}
		return nil
	})
	waitEnds(t, "pages of a core that is no more", old, true)
	s.NoPages(old) // too late: there are others
	next := s.Pages()
	second.Page()
	waitEnds(t, "a page of the next core", next, false)
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = s.Close()
	s.Release()
	waitEnds(t, "pages of a session that has ended", next, true)
	if s.Pages() != nil {
		t.Error("a session that has ended has pages")
	}
	_ = second.Close()
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// A process that has no descriptor left outlives a takeover: its pages are lost, and it sleeps
// on the bell.
func TestTakeoverWithoutDescriptors(t *testing.T) {
	f := newFake(t)
	pager, end, err := shm.NewPager()
	if err != nil {
		t.Fatal(err)
	}
	defer pager.Close()
	attached := make(chan struct{})
	done := f.script(func(c *attach.Conn) error {
		err := f.welcome(c)
		<-attached
		err = errors.Join(err, c.Send(&attach.Message{Type: attach.TypeResumed, Resumed: &attach.Resumed{}}, end))
		shm.CloseFDs([]int{end})
		m, _, recvErr := c.Recv()
		if err = errors.Join(err, recvErr); err == nil && m.Type != attach.TypeHave {
			err = fmt.Errorf("%s instead of have", m.Type)
		}
		return err
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	close(attached)
	err = <-done
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Error(err)
	}
	if s.Pages() != nil {
		t.Error("pages without a descriptor")
	}
	_ = s.Close()
	s.Release()
}
