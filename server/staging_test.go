package server

import (
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// silentSession is a session whose daemon has said welcome, and no more.
func silentSession(t *testing.T) *attach.Session {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	segment := func(kind shm.Kind, size int) int {
		seg, err := shm.Create(shm.CreateOptions{Name: "test", Kind: kind, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = seg.Close() })
		return seg.FD()
	}
	domain, worker := segment(shm.KindDomain, slots.DomainSegmentSize), segment(shm.KindWorker, slots.WorkerSegmentSize)
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bell.Close() })
	welcomed := make(chan error, 1)
	go func() {
		sock, err := l.AcceptUnix()
		if err != nil {
			welcomed <- err
			return
		}
		c := attach.NewConn(sock)
		t.Cleanup(func() { _ = c.Close() })
		_, _, err = c.Recv()
		welcome := &attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: shm.ABIVersion, Node: "n", Domain: "d", ID: 1}}
		welcomed <- errors.Join(err, c.Send(welcome, domain, worker, bell.FD()))
	}()
	s, err := attach.Open(t.Context(), socket, attach.Hello{Role: attach.RoleService}, attach.Events{})
	if err := errors.Join(err, <-welcomed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		s.Release()
	})
	return s
}

// However many handlers need memory from a daemon that stands still, none waits for what the others have waited.
func TestStagingOfASilentDaemon(t *testing.T) {
	var s staging
	s.init(silentSession(t))
	s.patience = 2 * time.Second
	// What takes too long in one round may be due to the machine, in all of them it is not.
	quickest := func(what string, most time.Duration, round func()) {
		t.Helper()
		took := most
		for tries := 5; tries > 0 && took >= most; tries-- {
			begin := time.Now()
			round()
			took = time.Since(begin)
		}
		if took >= most {
			t.Errorf("%s: %v, the daemon is waited for for %v", what, took, s.patience)
		}
	}
	quickest("all have waited", 4*s.patience, func() { // who asks for itself waits for up to five times as long
		s.retry = time.Time{}
		begin := time.Now()
		var waiters sync.WaitGroup
		for range 5 {
			waiters.Go(func() {
				if err := s.ready(); !errors.Is(err, ErrLimit) {
					t.Error(err)
				}
				if took := time.Since(begin); took < s.patience {
					t.Errorf("one has waited for %v, the daemon is waited for for %v", took, s.patience)
				}
			})
		}
		waiters.Wait()
		if !s.retry.After(begin.Add(s.patience)) {
			t.Error("the daemon would be asked again at once")
		}
	})
	quickest("just afterwards", s.patience, func() {
		s.retry = time.Now().Add(time.Minute) // however slow this machine is
		if err := s.ready(); !errors.Is(err, ErrLimit) {
			t.Errorf("just afterwards: %v", err)
		}
	})
	s.retry = time.Now() // so much later
	begin := time.Now()
	if err := s.ready(); !errors.Is(err, ErrLimit) || time.Since(begin) < s.patience {
		t.Errorf("later the daemon is not asked again: %v after %v", err, time.Since(begin))
	}
}
