package server

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// openOf opens a stream in the rig, whose handler is h and may send so many bytes, and returns it.
func (r *exchangeRig) openOf(t *testing.T, credit uint64, h StreamHandler) *Stream {
	t.Helper()
	r.s.handlers.Store(&map[uint32]handlers{fuzzMethod: {call: fuzzCall, stream: h}})
	r.send(0, false, exchange.PartRequest{Op: exchange.OpOpenStream, Credit: credit}, nil)
	if len(r.ids) != 1 {
		t.Fatal("no stream")
	}
	return r.s.exchanges.open[r.ids[0]].stream
}

// frame is the beginning of a message of size bytes.
func frame(size int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(size)) }

// awaits waits until the handler of the stream waits in Recv.
func awaits(t *testing.T, s *Stream) {
	t.Helper()
	daemontest.Eventually(t, "the handler waits", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.reading {
			return errors.New("it does not")
		}
		return nil
	})
}

// A caller that goes on with a message for which there is no room gets nothing more in, whatever its
// handler does.
func TestRefusedMessageStaysOut(t *testing.T) {
	r := newExchangeRig(t)
	x := &r.s.exchanges
	x.limit = 1000
	refused, let := make(chan error), make(chan struct{})
	s := r.openOf(t, 1000, func(s *Stream) error {
		for range 2 {
			_, err := s.Recv()
			refused <- err
		}
		<-let
		return nil
	})
	awaits(t, s)
	size := 2 * exchange.Window
	at := uint64(0)
	push := func(data []byte) {
		r.send(1, false, exchange.PartRequest{Op: exchange.OpSend, ID: r.ids[0], Offset: at, Length: uint32(len(data)), Credit: 1000}, data)
		at += uint64(len(data))
	}
	push(frame(size))
	for range 2 {
		if err := <-refused; !errors.Is(err, ErrLimit) {
			t.Errorf("the handler gets %v", err)
		}
	}
	for range 3 {
		push(make([]byte, 200))
		r.send(2, false, exchange.PartRequest{Op: exchange.OpWait, ID: r.ids[0], Credit: 1000}, nil)
	}
	s.mu.Lock()
	if got := s.in.Got(); got != exchange.FrameSize {
		t.Errorf("%d bytes came in", got)
	}
	s.mu.Unlock()
	close(let)
	r.s.stop()
	x.shut()
	if x.bytes != 0 {
		t.Errorf("%d bytes are counted in the end", x.bytes)
	}
}

// What a stream has counted ends with its handler, and the stream with it, if the caller has
// given it up after its context had ended otherwise.
func TestGivenUpAfterItsEnd(t *testing.T) {
	r := newExchangeRig(t)
	x := &r.s.exchanges
	x.limit = 1 << 20
	let := make(chan struct{})
	s := r.openOf(t, 1000, func(s *Stream) error {
		_, err := s.Recv()
		<-let
		return err
	})
	awaits(t, s)
	r.send(1, false, exchange.PartRequest{Op: exchange.OpSend, ID: r.ids[0], Length: exchange.FrameSize, Credit: 1000}, frame(300<<10))
	if x.bytes != 300<<10 {
		t.Errorf("%d bytes are counted", x.bytes)
	}
	s.cancel(errors.New("a deadline"))
	r.send(2, true, exchange.PartRequest{Op: exchange.OpClose, ID: r.ids[0]}, nil)
	close(let)
	x.running.Wait()
	if len(x.open) != 0 || x.bytes != 0 {
		t.Errorf("%d exchanges with %d bytes are left", len(x.open), x.bytes)
	}
}

// A wait that comes when its stream has just been given up is not kept: nobody would end it.
func TestWaitOfStreamThatIsGone(t *testing.T) {
	r := newExchangeRig(t)
	x := &r.s.exchanges
	s := r.openOf(t, 0, func(s *Stream) error { return s.Send(make([]byte, 5000)) })
	x.running.Wait() // the handler has returned, with bytes that its caller does not want yet
	s.giveUp()
	// As a worker that had found the exchange before.
	r.ring.Deliver(2, 1, fuzzID, 1)
	u, ok := r.ring.Pick(2, fuzzID)
	if !ok {
		t.Fatal("not picked")
	}
	s.hold(&part{x: x, ring: r.ring, run: u, lane: fuzzLane, header: slots.Header{Answer: 300, Ticket: 1}})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil || r.ring.kept.Load() != 0 {
		t.Error("the wait is kept")
	}
	if r.ring.AnswerWord(2) != slots.MakeWord(slots.Done, 1, fuzzID, 1) {
		t.Error("the wait has no answer")
	}
}

// A large one-way message whose handler does not run leaves nothing behind.
func TestLargePostTooLate(t *testing.T) {
	r := newExchangeRig(t)
	x := &r.s.exchanges
	r.send(0, false, exchange.PartRequest{Op: exchange.OpOpenCall, Length: 200, Credit: 600}, make([]byte, 200))
	if len(r.ids) != 1 || x.bytes != 600 {
		t.Fatalf("%d exchanges with %d bytes", len(r.ids), x.bytes)
	}
	u := slots.Run{Index: 1, Len: 1, Ticket: 1}
	h := slots.Header{
		Ticket: 1, Run: 1, Kind: slots.KindOneWay, Flags: slots.FlagPart, Method: fuzzMethod, Length: exchange.PartSize, Answer: 300,
		Deadline: time.Second.Nanoseconds(), // after boot
	}
	h.Encode(r.ring.Header(u))
	run := exchange.PartRequest{Op: exchange.OpRun, ID: r.ids[0]}
	run.Encode(r.ring.Payload(u))
	r.ring.Deliver(1, 1, fuzzID, 1)
	r.s.pool.serve(&Call{server: r.s, batch: &batch{}}, slots.MakeHint(fuzzLane, 1, 1))
	if len(x.open) != 0 || x.bytes != 0 {
		t.Errorf("%d exchanges with %d bytes are left", len(x.open), x.bytes)
	}
}
