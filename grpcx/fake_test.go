package grpcx

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

// fakeNet is streams without daemons, whose every operation a test can make fail.
type fakeNet struct {
	mu       sync.Mutex
	handlers map[string]func(incoming) error
	// openError, sendError and recvError, if set, say what an operation of a caller
	// returns instead of being done; nil means that it is done.
	openError func(target string) error
	sendError func(msg []byte) error
	recvError func() error
	// onSend and onAnswer may change what is on the way to the handler and back.
	onSend   func(msg []byte) []byte
	onAnswer func(msg []byte) []byte
	// answerError, if set, says what an answer's Send returns instead of sending it; nil means that it is sent.
	answerError func(msg []byte) error
	// withdrawn: new calls can go to other processes.
	withdrawn bool
	// sinces counts the looks for what is not there that had to be new.
	sinces int
	// sent counts the frames of callers, answered those of handlers.
	sent, answered int

	ctx     context.Context // of the server, which close closes
	close   context.CancelFunc
	running sync.WaitGroup
}

func newFakeNet(ctx context.Context) *fakeNet {
	return &fakeNet{handlers: make(map[string]func(incoming) error), ctx: ctx}
}

func (n *fakeNet) node() string   { return "here" }
func (n *fakeNet) target() string { return "" }

func (n *fakeNet) handle(service, method string, h func(incoming) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handlers[service+"/"+method] = h
	return nil
}

func (n *fakeNet) withdraw(context.Context) error {
	if !n.withdrawn {
		return errors.New("fake: nobody else has it")
	}
	return nil
}

func (n *fakeNet) fetched(context.Context) error { return nil }

func (n *fakeNet) absent(_ context.Context, service, method string, since time.Time) absence {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !since.IsZero() {
		n.sinces++
	}
	found := noNode
	for name := range n.handlers {
		o := offer{}
		o.Service, o.Method, _ = strings.Cut(name, "/")
		found = max(found, o.lacks(service, method))
	}
	return found
}

func (n *fakeNet) open(ctx context.Context, service, method string, first []byte) (outgoing, error) {
	s, err := n.stream(ctx, service+"/"+method)
	if err == nil {
		err = s.send(ctx, first, nil) // it comes with the stream, so that the handler cannot be over before
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (n *fakeNet) stream(ctx context.Context, target string) (*fakeStream, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.openError != nil {
		if err := n.openError(target); err != nil {
			return nil, err
		}
	}
	h := n.handlers[target]
	if h == nil {
		return nil, client.ErrNoService
	}
	s := &fakeStream{net: n, up: make(chan []byte, 4), down: make(chan []byte, 4), over: make(chan struct{})}
	var cancel context.CancelCauseFunc
	s.ctx, cancel = context.WithCancelCause(n.ctx)
	s.giveUp = func() { cancel(server.ErrGivenUp) }
	unlink := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // of which the handler hears by itself
			s.giveUp()
		}
	})
	hctx, stop := s.ctx, context.CancelFunc(func() {})
	if d, ok := ctx.Deadline(); ok {
		hctx, stop = context.WithDeadline(s.ctx, d)
	}
	hctx, abort := context.WithCancelCause(hctx)
	n.running.Go(func() {
		defer stop()
		defer abort(nil)
		s.err = h(&fakeIncoming{s, hctx, abort})
		close(s.over)
		unlink()
		s.giveUp()
	})
	return s, nil
}

// fakeStream is the caller's end.
type fakeStream struct {
	net      *fakeNet
	up, down chan []byte
	closed   sync.Once
	over     chan struct{} // the handler has returned err
	err      error
	ctx      context.Context
	giveUp   func()
}

var errFakeOver = errors.New("fake: the stream has ended")

func (s *fakeStream) Send(ctx context.Context, msg []byte) error { return s.send(ctx, msg, s.over) }

func (s *fakeStream) send(ctx context.Context, msg []byte, over <-chan struct{}) error {
	if s.net.sendError != nil {
		if err := s.net.sendError(msg); err != nil {
			return err
		}
	}
	s.net.mu.Lock()
	s.net.sent++
	s.net.mu.Unlock()
	msg = append([]byte(nil), msg...)
	if s.net.onSend != nil {
		msg = s.net.onSend(msg)
	}
	select {
	case s.up <- msg:
		return nil
	case <-over:
		return errFakeOver
	case <-ctx.Done():
		return &client.DeadlineError{Cause: ctx.Err()}
	}
}

func (s *fakeStream) CloseSend(context.Context) error {
	s.closed.Do(func() { close(s.up) })
	return nil
}

func (s *fakeStream) Recv(ctx context.Context) ([]byte, error) {
	if s.net.recvError != nil {
		if err := s.net.recvError(); err != nil {
			return nil, err
		}
	}
	select {
	case b := <-s.down:
		return b, nil
	case <-ctx.Done():
		return nil, &client.DeadlineError{Sent: true, Cause: ctx.Err()}
	case <-s.over:
	}
	select {
	case b := <-s.down:
		return b, nil
	default:
	}
	if s.err != nil {
		return nil, &client.RemoteError{Text: s.err.Error()}
	}
	return nil, io.EOF
}

func (s *fakeStream) Close() error {
	s.giveUp()
	return nil
}

// fakeIncoming is the handler's end.
type fakeIncoming struct {
	s      *fakeStream
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (i *fakeIncoming) Abort(err error) { i.cancel(err) }

func (i *fakeIncoming) Context() context.Context { return i.ctx }

func (i *fakeIncoming) Recv() ([]byte, error) {
	select {
	case b, ok := <-i.s.up:
		if !ok {
			return nil, io.EOF
		}
		return b, nil
	case <-i.ctx.Done():
		return nil, i.ctx.Err()
	}
}

func (i *fakeIncoming) Send(msg []byte) error {
	if i.s.net.answerError != nil {
		if err := i.s.net.answerError(msg); err != nil {
			return err
		}
	}
	i.s.net.mu.Lock()
	i.s.net.answered++
	i.s.net.mu.Unlock()
	msg = append([]byte(nil), msg...)
	if i.s.net.onAnswer != nil {
		msg = i.s.net.onAnswer(msg)
	}
	select {
	case i.s.down <- msg:
		return nil
	case <-i.ctx.Done():
		return i.ctx.Err()
	}
}

// quiet waits until no handler runs.
func (n *fakeNet) quiet() error {
	done := make(chan struct{})
	go func() {
		n.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(time.Minute):
		return errors.New("handlers run on")
	}
}
