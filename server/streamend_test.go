package server

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// A stream that its caller gives up is forgotten as soon as its handler has returned, in
// whichever order that happens.
func TestStreamIsForgotten(t *testing.T) {
	for name, last := range map[string]func(x *exchanges, s *Stream){
		"given up, then over": func(x *exchanges, s *Stream) {
			x.close(s.e)
			s.finish(slots.StatusOK, "")
		},
		"over, then given up": func(x *exchanges, s *Stream) {
			s.finish(slots.StatusOK, "")
			x.close(s.e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := begun(t)
			last(x, s)
			if len(x.open) != 0 || x.streams != 0 {
				t.Errorf("%d exchanges and %d streams are left", len(x.open), x.streams)
			}
		})
	}
}

// begun returns a stream whose caller has not asked for anything yet.
func begun(t *testing.T) (*exchanges, *Stream) {
	t.Helper()
	x := &exchanges{server: &Server{base: context.Background()}, maxStreams: 1, lease: exchangeLease, open: make(map[uint64]*serverExchange)}
	s := &Stream{
		x: x, in: exchange.NewInbox(exchange.Window, exchange.MaxMessage), out: exchange.NewOutbox(exchange.Window, exchange.Window),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	s.context(0)
	s.e = &serverExchange{stream: s}
	if ok, why := x.add(s.e); !ok {
		t.Fatal(why)
	}
	return x, s
}

// A handler that returns while a message is half sent has failed, whatever it says, and nothing goes behind the end.
func TestHandlerLeavesHalfAMessage(t *testing.T) {
	x, s := begun(t)
	sent := make(chan error)
	go func() { sent <- s.Send(make([]byte, 4*exchange.Window)) }()
	for { // until there is no room for more
		s.mu.Lock()
		half := s.out.Room() == 0
		s.mu.Unlock()
		if half {
			break
		}
		runtime.Gosched()
	}
	s.finish(slots.StatusOK, "")
	if s.status != slots.StatusRemote || s.text != halfSent {
		t.Errorf("the outcome is %v, %q", s.status, s.text)
	}
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("the message: %v", err)
	}
	pending := s.out.Pending()
	if err := s.Send([]byte("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("a message behind the end: %v", err)
	}
	if n := s.out.Pending(); n != pending {
		t.Errorf("%d bytes behind the end", n-pending)
	}
	x.close(s.e)
}

// Abort ends what is sent and received in other goroutines, and leaves the outcome to the handler.
func TestAbort(t *testing.T) {
	x, s := begun(t)
	why := errors.New("enough")
	ends := make(chan error, 2)
	go func() { ends <- s.Send(make([]byte, 4*exchange.Window)) }()
	go func() {
		_, err := s.Recv()
		ends <- err
	}()
	for both := false; !both; runtime.Gosched() {
		s.mu.Lock()
		both = s.out.Room() == 0 && s.reading
		s.mu.Unlock()
	}
	s.Abort(why)
	s.Abort(errors.New("later"))
	for range 2 {
		if err := <-ends; err != why {
			t.Errorf("what was waited for: %v", err)
		}
	}
	if err := context.Cause(s.Context()); err != why {
		t.Errorf("the context: %v", err)
	}
	s.finish(slots.StatusRemote, "no more")
	if s.status != slots.StatusRemote || s.text != "no more" {
		t.Errorf("the outcome is %v, %q", s.status, s.text)
	}
	s.Abort(errors.New("behind the end"))
	x.close(s.e)
}

// What a handler has sent whole is not half sent, however full the stream is.
func TestHandlerLeavesAFullStream(t *testing.T) {
	x, s := begun(t)
	if err := s.Send(make([]byte, exchange.Window-exchange.FrameSize)); err != nil || s.out.Room() != 0 {
		t.Fatalf("%d bytes of room are left, %v", s.out.Room(), err)
	}
	s.finish(slots.StatusOK, "")
	if s.status != slots.StatusOK {
		t.Errorf("the outcome is %v, %q", s.status, s.text)
	}
	x.close(s.e)
}

// What handlers have left for callers who do not fetch it is bounded: as much as the streams that may run have room for.
func TestUnfetchedStreamsAreBounded(t *testing.T) {
	x, s := begun(t)
	x.maxStreams = 2
	var over []*Stream
	for {
		if err := s.Send(make([]byte, exchange.Window-exchange.FrameSize)); err != nil {
			t.Fatal(err)
		}
		s.finish(slots.StatusOK, "")
		over = append(over, s)
		next := &Stream{x: x, in: exchange.NewInbox(exchange.Window, exchange.MaxMessage), out: exchange.NewOutbox(exchange.Window, exchange.Window)}
		next.context(0)
		next.e = &serverExchange{stream: next}
		if ok, why := x.add(next.e); !ok {
			if !strings.Contains(why, "have not fetched") {
				t.Errorf("refused because %s", why)
			}
			next.cancel(nil)
			break
		}
		s = next
	}
	if len(over) != x.maxStreams+1 {
		t.Errorf("%d streams were over before one was refused", len(over))
	}
	for _, s := range over {
		x.close(s.e)
	}
	if len(x.open) != 0 || x.unfetched != 0 {
		t.Errorf("%d exchanges and %d bytes are left", len(x.open), x.unfetched)
	}
}

// Nothing is kept of what a caller sends to a handler that has returned, and it gets no credit for it.
func TestNothingIsKeptForAHandlerThatReturned(t *testing.T) {
	x, s := begun(t)
	frame := make([]byte, exchange.FrameSize)
	exchange.PutFrame(frame, 1000)
	s.mu.Lock()
	if err := s.in.Add(0, append(frame, "the beginning"...)); err != nil {
		t.Fatal(err)
	}
	s.mu.Unlock()
	s.finish(slots.StatusOK, "")
	s.mu.Lock()
	got := s.in.Got()
	if err := s.in.Add(got, make([]byte, exchange.Window-int(got))); err != nil {
		t.Error(err)
	}
	if err := s.in.Add(exchange.Window, []byte("more")); err == nil {
		t.Error("the caller may send more than the window")
	}
	if msg, ok, _ := s.in.Take(); ok {
		t.Errorf("%d bytes were kept", len(msg))
	}
	s.mu.Unlock()
	x.close(s.e)
}
