package attach_test

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/slots"
)

// A lane for which a client has no room costs it nothing but that lane, and is there once there is room.
func TestLaneWithoutRoom(t *testing.T) {
	f := newFake(t)
	before := leaktest.Descriptors(t)
	room := attach.NoRoom(t)
	route := &attach.Route{Method: 1, Lanes: []uint16{3}}
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		for try := range 4 {
			m, _, err := c.Recv()
			if err == nil && try == 0 {
				err = f.lane(c, 3) // the worker has been given it then
			}
			if err == nil && try == 3 {
				err = c.Send(&attach.Message{Type: attach.TypeClosed, Lane: &attach.Lane{ID: 3}})
			}
			if err == nil {
				err = c.Send(&attach.Message{Type: attach.TypeResolved, Seq: m.Seq, Route: route})
			}
			if err != nil {
				return err
			}
		}
		_, _, err := c.Recv() // the goodbye
		return err
	})
	var mapped, closed []uint16
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{
		Lane:   func(l attach.Lane, _ *slots.Ring) { mapped = append(mapped, l.ID) },
		Closed: func(id uint16, unmap func()) { closed = append(closed, id); unmap() },
	})
	if err != nil {
		t.Fatal(err)
	}
	resolve := &attach.Message{Type: attach.TypeResolve, Target: &attach.Target{Service: "s", Method: "m"}}
	for range 2 {
		if _, err := s.Ask(t.Context(), resolve); !errors.Is(err, attach.ErrLimit) {
			t.Errorf("without room: %v", err)
		}
	}
	room.Store(true)
	if a, err := s.Ask(t.Context(), resolve); err != nil || a.Route == nil || len(mapped) != 1 || mapped[0] != 3 {
		t.Errorf("with room: %+v, %v, mapped %v", a, err, mapped)
	}
	if _, err := s.Ask(t.Context(), resolve); err != nil || len(closed) != 1 {
		t.Errorf("closed: %v, %v", err, closed)
	}
	if err := errors.Join(s.Close(), <-done); err != nil {
		t.Error(err)
	}
	s.Release()
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// A service looks by itself whether there is room by now: requests wait for it. A lane that is closed meanwhile is
// forgotten, and what is left when the session ends leaves no descriptor.
func TestServiceWithoutRoom(t *testing.T) {
	f := newFake(t)
	before := leaktest.Descriptors(t)
	room := attach.NoRoom(t)
	asked, mapped := make(chan struct{}, 100), make(chan uint16, 10)
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		for id := range uint16(3) {
			if err := f.lane(c, id); err != nil {
				return err
			}
		}
		if err := c.Send(&attach.Message{Type: attach.TypeClosed, Lane: &attach.Lane{ID: 1}}); err != nil {
			return err
		}
		for {
			m, _, err := c.Recv()
			if err != nil || m.Type == attach.TypeBye {
				return err
			}
			asked <- struct{}{}
			if err := c.Send(&attach.Message{Type: attach.TypePong, Seq: m.Seq}); err != nil {
				return err
			}
		}
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleService}, attach.Events{
		Lane: func(l attach.Lane, _ *slots.Ring) { mapped <- l.ID },
	})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if _, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypePing}); err != nil { // all lanes, and the end of one, have been heard of
		t.Fatal(err)
	}
	select {
	case id := <-mapped:
		t.Errorf("lane %d is mapped without room", id)
	default:
	}
	room.Store(true)
	if one, two := <-mapped, <-mapped; one+two != 2 || one == two {
		t.Errorf("mapped %d and %d", one, two)
	}
	if err := errors.Join(s.Close(), <-done); err != nil {
		t.Error(err)
	}
	s.Release()

	room.Store(false)
	done = f.script(func(c *attach.Conn) error {
		err := errors.Join(f.welcome(c), f.lane(c, 7))
		if err == nil {
			_, _, err = c.Recv()
		}
		return err
	})
	if s, err = attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleService}, attach.Events{}); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	<-done
	s.Release()
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}
