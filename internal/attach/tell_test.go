package attach_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
)

// What a process tells a daemon that stands still, and asks it, arrives once that goes on, all of it and in order.
func TestTellWhoStandsStill(t *testing.T) {
	const told = 1000 // more than the socket's buffer takes
	f := newFake(t)
	goOn, all := make(chan struct{}), make(chan struct{})
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		<-goOn
		for next := uint32(0); ; {
			m, _, err := c.Recv()
			if err != nil {
				return err
			}
			switch m.Type {
			case attach.TypeFree:
				if m.Region.Index != next {
					return fmt.Errorf("region %d is freed where %d was to be", m.Region.Index, next)
				}
				if next++; next == told {
					close(all)
				}
			case attach.TypePing:
				err = c.Send(&attach.Message{Type: attach.TypePong, Seq: m.Seq})
			case attach.TypeBye:
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	attach.Hurry(s, 10*time.Millisecond)
	for i := range uint32(told) {
		if err := s.Tell(&attach.Message{Type: attach.TypeFree, Region: &attach.RegionInfo{Index: i}}); err != nil {
			t.Fatal(err)
		}
	}
	attach.Hurry(s, time.Minute) // what who asks is not to wait for
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := s.Ask(short, &attach.Message{Type: attach.TypePing}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
		t.Errorf("asked who stands still: %v after %v", err, time.Since(began))
	}
	asked := make(chan error, 1)
	go func() {
		_, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypePing})
		asked <- err
	}()
	select {
	case err := <-asked:
		t.Errorf("asked who stands still: %v", err)
	case <-time.After(50 * time.Millisecond): // so that the question meets a full buffer, too
	}
	close(goOn)
	if err := <-asked; err != nil {
		t.Error(err)
	}
	select {
	case <-all:
	case err := <-done:
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
