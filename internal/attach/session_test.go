package attach_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// fake is a daemon that says what the test wants.
type fake struct {
	t      *testing.T
	socket string
	listen *net.UnixListener
	segs   map[shm.Kind]*shm.Segment
	bell   *shm.Bell
}

var geometry = slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, socket: filepath.Join(t.TempDir(), "s"), segs: map[shm.Kind]*shm.Segment{}}
	var err error
	if f.listen, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: f.socket, Net: "unixpacket"}); err != nil {
		t.Fatal(err)
	}
	for kind, size := range map[shm.Kind]int{shm.KindDomain: slots.DomainSegmentSize, shm.KindWorker: slots.WorkerSegmentSize, shm.KindLane: geometry.SegmentSize()} {
		if f.segs[kind], err = shm.Create(shm.CreateOptions{Name: "test", Kind: kind, Size: size}); err != nil {
			t.Fatal(err)
		}
	}
	if f.bell, err = shm.NewBell(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.listen.Close()
		_ = f.bell.Close()
		for _, s := range f.segs {
			_ = s.Close()
		}
	})
	return f
}

// script accepts one worker, reads its hello and lets say speak. The connection is
// closed when the outcome comes.
func (f *fake) script(say func(c *attach.Conn) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		sock, err := f.listen.AcceptUnix()
		if err != nil {
			done <- err
			return
		}
		c := attach.NewConn(sock)
		_, _, err = c.Recv()
		if err == nil {
			err = say(c)
		}
		_ = c.Close()
		done <- err
	}()
	return done
}

func (f *fake) welcome(c *attach.Conn) error {
	return c.Send(&attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: shm.ABIVersion, Node: "n", Domain: "d", ID: 1}},
		f.segs[shm.KindDomain].FD(), f.segs[shm.KindWorker].FD(), f.bell.FD())
}

func (f *fake) lane(c *attach.Conn, id uint16) error {
	return c.Send(&attach.Message{Type: attach.TypeLane, Lane: &attach.Lane{ID: id, Geometry: geometry}}, f.segs[shm.KindLane].FD())
}

// mappings returns how many memfds are mapped, one after the other or not.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:")
}

// Whatever a welcome is like, a refused session leaves no descriptor open.
func TestBadWelcomes(t *testing.T) {
	f := newFake(t)
	d, w, l := f.segs[shm.KindDomain].FD(), f.segs[shm.KindWorker].FD(), f.segs[shm.KindLane].FD()
	good := &attach.Welcome{ABI: shm.ABIVersion, ID: 1}
	for name, c := range map[string]struct {
		m    *attach.Message
		fds  []int
		want error
	}{
		"refusal":        {&attach.Message{Type: attach.TypeFail, Fail: &attach.Fail{Code: "limit", Text: "full"}}, []int{d}, attach.ErrLimit},
		"goodbye":        {&attach.Message{Type: attach.TypeGoodbye, Reason: "stopping"}, []int{d}, attach.ErrClosed},
		"other message":  {&attach.Message{Type: attach.TypeLane}, []int{d, w, f.bell.FD()}, attach.ErrInvalid},
		"other version":  {&attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: 1 << 20, ID: 1}}, []int{d, w, f.bell.FD()}, attach.ErrVersion},
		"no descriptors": {&attach.Message{Type: attach.TypeWelcome, Welcome: good}, nil, attach.ErrInvalid},
		"too many":       {&attach.Message{Type: attach.TypeWelcome, Welcome: good}, []int{d, w, f.bell.FD(), f.bell.FD(), l}, attach.ErrInvalid},
		"no id":          {&attach.Message{Type: attach.TypeWelcome, Welcome: &attach.Welcome{ABI: shm.ABIVersion}}, []int{d, w, f.bell.FD()}, attach.ErrInvalid},
		"wrong segment":  {&attach.Message{Type: attach.TypeWelcome, Welcome: good}, []int{l, w, f.bell.FD()}, shm.ErrBadSegment},
		"wrong second":   {&attach.Message{Type: attach.TypeWelcome, Welcome: good}, []int{d, l, f.bell.FD()}, shm.ErrBadSegment},
		"not a segment":  {&attach.Message{Type: attach.TypeWelcome, Welcome: good}, []int{f.bell.FD(), w, d}, shm.ErrBadSegment},
	} {
		before := leaktest.Descriptors(t)
		done := f.script(func(conn *attach.Conn) error { return conn.Send(c.m, c.fds...) })
		s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
		if s != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: daemon: %v", name, err)
		}
		if now := leaktest.Descriptors(t); now > before {
			t.Errorf("%s: %d descriptors, %d before", name, now, before)
		}
	}
}

// Malformed messages end a session; what came with them is closed.
func TestBadMessages(t *testing.T) {
	f := newFake(t)
	lane := f.segs[shm.KindLane].FD()
	for name, c := range map[string]struct {
		m   *attach.Message
		fds []int
	}{
		"lane without body":      {&attach.Message{Type: attach.TypeLane}, []int{lane}},
		"lane without memory":    {&attach.Message{Type: attach.TypeLane, Lane: &attach.Lane{Geometry: geometry}}, nil},
		"lane with two":          {&attach.Message{Type: attach.TypeLane, Lane: &attach.Lane{Geometry: geometry}}, []int{lane, lane}},
		"lane of a bad shape":    {&attach.Message{Type: attach.TypeLane, Lane: &attach.Lane{Geometry: slots.Geometry{SlotSize: 1, Slots: 1}}}, []int{lane}},
		"lane that is too small": {&attach.Message{Type: attach.TypeLane, Lane: &attach.Lane{Geometry: slots.Geometry{SlotSize: 128, Slots: 4096, MaxRun: 4}}}, []int{lane}},
		"lane id":                {&attach.Message{Type: attach.TypeLane, Lane: &attach.Lane{ID: slots.MaxLanes, Geometry: geometry}}, []int{lane}},
		"wrong kind":             {&attach.Message{Type: attach.TypeLane, Lane: &attach.Lane{Geometry: geometry}}, []int{f.segs[shm.KindWorker].FD()}},
		"spill without memory":   {&attach.Message{Type: attach.TypeSpilled, Seq: 1}, nil},
		"spill in a segment":     {&attach.Message{Type: attach.TypeSpilled, Seq: 1}, []int{lane}},
		"spill of rubbish":       {&attach.Message{Type: attach.TypeSpilled, Seq: 1}, []int{sealed(t, []byte("rubbish"))}},
		"spill of nothing":       {&attach.Message{Type: attach.TypeSpilled, Seq: 1}, []int{sealed(t, nil)}},
		"answer to nothing":      {&attach.Message{Type: attach.TypePong, Seq: 77}, []int{lane}},
		"closed lane":            {&attach.Message{Type: attach.TypeClosed, Lane: &attach.Lane{ID: 9}}, []int{lane}},
		"closed without body":    {&attach.Message{Type: attach.TypeClosed}, []int{lane}},
	} {
		before := leaktest.Descriptors(t)
		if err := f.endOf(name, func(conn *attach.Conn) error { return conn.Send(c.m, c.fds...) }); !errors.Is(err, attach.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		if now := leaktest.Descriptors(t); now > before {
			t.Errorf("%s: %d descriptors, %d before", name, now, before)
		}
	}
}

// endOf returns how a client's session ends whose daemon welcomes it, says something and goes.
func (f *fake) endOf(name string, say func(*attach.Conn) error) error {
	f.t.Helper()
	done := f.script(func(conn *attach.Conn) error { return errors.Join(f.welcome(conn), say(conn)) })
	s, err := attach.Open(f.t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		f.t.Fatal(name, err)
	}
	defer s.Release()
	defer func() { _ = s.Close() }()
	if err := <-done; err != nil {
		f.t.Errorf("%s: daemon: %v", name, err)
	}
	<-s.Done()
	return s.Err()
}

// However a session ends, its error names the daemon's socket and what has happened.
func TestEndNamesTheDaemon(t *testing.T) {
	f := newFake(t)
	for name, c := range map[string]struct {
		say  func(*attach.Conn) error
		says string
	}{
		"goodbye": {func(c *attach.Conn) error {
			return c.Send(&attach.Message{Type: attach.TypeGoodbye, Reason: "tea time"})
		}, "tea time"},
		"no word":     {func(*attach.Conn) error { return nil }, "without a word: see its log, and attach again"},
		"bad message": {func(c *attach.Conn) error { return c.Send(&attach.Message{Type: attach.TypeLane}) }, "lane"},
	} {
		if err := f.endOf(name, c.say); !errors.Is(err, attach.ErrClosed) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), f.socket) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// So does one that is none: the connection is over, and that is what callers know it by.
func TestUndecodableMessage(t *testing.T) {
	f := newFake(t)
	for _, data := range []string{"rubbish", "{}", `{"type":7}`} {
		done := f.script(func(conn *attach.Conn) error { return errors.Join(f.welcome(conn), attach.SendRaw(conn, []byte(data))) })
		s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
		if err != nil {
			t.Fatal(data, err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: daemon: %v", data, err)
		}
		<-s.Done()
		if !errors.Is(s.Err(), attach.ErrClosed) {
			t.Errorf("%s: %v", data, s.Err())
		}
		_ = s.Close()
		s.Release()
	}
}

// sealed makes a memfd that is closed when the test ends.
func sealed(t *testing.T, data []byte) int {
	t.Helper()
	fd, err := shm.CreateSealed("test", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shm.CloseFDs([]int{fd}) })
	return fd
}

// The owner of a session gets what a spill brings, and the daemon hears that it was read.
func TestSpilled(t *testing.T) {
	f := newFake(t)
	spill := slots.NewSpill(200)
	for k := range uint64(2) {
		spill = slots.AppendSpilled(spill, &slots.Spilled{Lane: 3, Run: slots.Run{Index: 4, Len: 1, Ticket: k},
			Header: slots.Header{Ticket: k, Length: 2, Run: 1, Kind: slots.KindAnswer}, Payload: []byte("ok")})
	}
	fd := sealed(t, spill)
	heard := make(chan *attach.Message, 1)
	done := f.script(func(c *attach.Conn) error {
		err := errors.Join(f.welcome(c), c.Offer(&attach.Message{Type: attach.TypeSpilled, Seq: 7}, fd))
		if err == nil {
			var m *attach.Message
			m, _, err = c.Recv()
			heard <- m
		}
		return err
	})
	got := make(chan []slots.Spilled, 1)
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{Spilled: func(a []slots.Spilled) { got <- a }})
	if err != nil {
		t.Fatal(err)
	}
	if a := <-got; len(a) != 2 || a[1].Run.Ticket != 1 || a[1].Lane != 3 || string(a[0].Payload) != "ok" {
		t.Errorf("got %+v", a)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if m := <-heard; m.Type != attach.TypeTaken || m.Seq != 7 {
		t.Errorf("the daemon hears %+v", m)
	}
	<-s.Done()
	_ = s.Close()
	s.Release()
}

// A lane that is closed is unmapped when its owner says so, once, or by Release.
func TestLanesComeAndGo(t *testing.T) {
	f := newFake(t)
	before := leaktest.Descriptors(t)
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		for range 3 {
			for id := range uint16(4) {
				if err := f.lane(c, id); err != nil {
					return err
				}
			}
			for id := range uint16(4) {
				if err := c.Send(&attach.Message{Type: attach.TypeClosed, Lane: &attach.Lane{ID: id}}); err != nil {
					return err
				}
			}
		}
		return c.Send(&attach.Message{Type: attach.TypeGoodbye, Reason: "enough"})
	})
	var unmaps []func()
	lanes := 0
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleService}, attach.Events{
		Lane:   func(_ attach.Lane, r *slots.Ring) { lanes += r.Geometry().Slots },
		Closed: func(id uint16, unmap func()) { unmaps = append(unmaps, unmap) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if lanes != 12*geometry.Slots || len(unmaps) != 12 {
		t.Errorf("%d slots, %d closed", lanes, len(unmaps))
	}
	mapped := mappings(t)
	for _, unmap := range unmaps[:6] {
		unmap()
		unmap()
	}
	if now := mappings(t); now != mapped-6 {
		t.Errorf("%d mappings, %d before", now, mapped)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close after the end: %v", err)
	}
	s.Release()
	for _, unmap := range unmaps {
		unmap() // late, and nothing
	}
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// A daemon that does not answer is given up when the context ends; questions are
// answered in any order.
func TestAsk(t *testing.T) {
	f := newFake(t)
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		var asked []*attach.Message
		for len(asked) < 20 {
			m, _, err := c.Recv()
			if err != nil {
				return err
			}
			if m.Node != "silence" {
				asked = append(asked, m)
			}
		}
		for i := range asked {
			m := asked[len(asked)-1-i]
			a := &attach.Message{Type: attach.TypePong, Seq: m.Seq, Node: m.Node}
			if m.Node == "n0" {
				a = &attach.Message{Type: attach.TypeFail, Seq: m.Seq, Fail: &attach.Fail{Code: "no-service", Text: "n0"}}
			}
			if err := c.Send(a); err != nil {
				return err
			}
		}
		_, _, err := c.Recv() // the goodbye
		return err
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Ask(short, &attach.Message{Type: attach.TypePing, Node: "silence"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
	errs := make(chan error)
	for i := range 20 {
		go func() {
			name := fmt.Sprint("n", i)
			a, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypePing, Node: name})
			switch {
			case i == 0 && errors.Is(err, attach.ErrNoService):
				err = nil
			case err == nil && a.Node != name:
				err = fmt.Errorf("%s got the answer of %s", name, a.Node)
			}
			errs <- err
		}()
	}
	for range 20 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypePing}); !errors.Is(err, attach.ErrClosed) {
		t.Errorf("ask after close: %v", err)
	}
	s.Release()
}

// Messages stay within their size.
func TestMessageSize(t *testing.T) {
	f := newFake(t)
	big, err := json.Marshal(string(make([]byte, attach.MaxMessage/5)))
	if err != nil {
		t.Fatal(err)
	}
	done := f.script(func(c *attach.Conn) error {
		err := c.Send(&attach.Message{Type: attach.TypeStatusIs, StatusJSON: big})
		if !errors.Is(err, attach.ErrLimit) {
			return fmt.Errorf("a large message: %w", err)
		}
		return f.welcome(c)
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-s.Done()
	_ = s.Close()
	s.Release()
}

// A status that the daemon has taken back before it was read is asked for again, by whoever wants it, and ends nothing.
func TestStatusTakenBack(t *testing.T) {
	f := newFake(t)
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		for _, data := range []string{"", `{"node":"a"}`} {
			m, _, err := c.Recv()
			for err == nil && m.Type == attach.TypeTaken {
				m, _, err = c.Recv()
			}
			if err == nil {
				err = c.Hand(&attach.Message{Type: attach.TypeStatusIs, Seq: m.Seq}, sealed(t, []byte(data)))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleTool}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypeStatus}); !errors.Is(err, attach.ErrLimit) {
		t.Errorf("what was taken back: %v", err)
	}
	if a, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypeStatus}); err != nil || string(a.StatusJSON) != `{"node":"a"}` {
		t.Errorf("asked again: %+v, %v", a, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = s.Close()
	s.Release()
}
