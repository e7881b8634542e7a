package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/slots"
)

// Handler answers a request. It runs on one of the server's workers, at most
// Workers of them at once. A returned error reaches the caller as an
// ErrRemote with its text; so does a panic, or the end of the goroutine by
// runtime.Goexit. The Call is valid until it returns.
type Handler func(c *Call) error

// Server is an attachment to the daemon of this node that answers requests. Its
// methods are safe for concurrent use.
type Server struct {
	session *attach.Session
	id      int
	workers int
	lanes   [slots.MaxLanes]atomic.Pointer[mapped]
	pool    pool
	ops     opQueue
	// exchanges are large messages and streams.
	exchanges exchanges
	said      sayer
	// inline is the request that the core's agent handles; it belongs to the agent's thread.
	inline *Call
	// wasInline are the methods that Handle has told the agent of; it belongs to handling.
	wasInline map[uint32]bool

	// handling lets one Handle run at a time. mu must not be held while the
	// daemon is asked: the session's events lock it.
	handling sync.Mutex
	left     bool // the agent has forgotten what Handle has told it, or is about to; guarded by handling
	mu       sync.Mutex
	handlers atomic.Pointer[map[uint32]handlers]
	serving  bool // Serve runs or has run
	closed   bool
	// base is the context of all calls; it ends with Serve.
	base context.Context
	stop context.CancelFunc
	// over is closed when Serve is about to return: nobody uses the memory.
	over chan struct{}
	// detach ends the attachment, once; what is mapped stays so.
	detach func() error
}

// Attach connects to the daemon that listens on socket; empty means the
// environment variable RDMAD_SOCKET or else /run/rdmad/rdmad.sock. The caller
// must Close the server. Errors: ErrNotRunning, ErrPermission, ErrVersion,
// ErrLimit, ErrClosed if the daemon went away meanwhile, again and again (try later), one that wraps
// os.ErrDeadlineExceeded if it has not answered within 10 s, or ctx's.
func Attach(ctx context.Context, socket string, opts ...Option) (*Server, error) {
	o := options{name: filepath.Base(os.Args[0]), workers: defaultWorkers, wait: defaultWait(), large: defaultLarge, streams: defaultStreams}
	for _, f := range opts {
		f(&o)
	}
	s := &Server{workers: o.workers, over: make(chan struct{})}
	s.base, s.stop = context.WithCancel(context.Background())
	s.handlers.Store(&map[uint32]handlers{})
	s.exchanges.init(s, &o)
	s.detach = sync.OnceValue(s.leave)
	s.inline = &Call{server: s, inline: true}
	// Held until session is set: the session's events use it.
	s.mu.Lock()
	defer s.mu.Unlock()
	session, err := attach.Open(ctx, socket, attach.Hello{Role: attach.RoleService, Name: o.name, Handlers: o.workers}, attach.Events{
		Lane:    s.addLane,
		Closed:  s.removeLane,
		Gone:    s.callerGone,
		Resumed: s.resumed,
		Ended:   s.sessionEnded,
	})
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("server: %w", err)
	}
	s.session, s.id = session, session.Welcome.ID
	s.said.apart = session.Core != nil
	s.exchanges.heldUp(session.Welcome.Hold())
	s.pool.init(s)
	s.ops.init(session)
	s.pool.poll.Mode, s.ops.poll.Mode = o.wait, o.wait
	s.pool.poll.Goroutines, s.ops.poll.Goroutines = true, true
	return s, nil
}

// Node returns the name of this node.
func (s *Server) Node() string { return s.session.Welcome.Node }

// Handle offers a method to callers on this and other nodes, from the return of
// this call on; they are answered once Serve runs. Names have 1 to 63 letters,
// digits, dots, dashes or underscores. A method that this server offers already gets the new
// handler and options: requests whose handlers have not begun go to it. Errors: ErrInvalid,
// ErrLimit, ErrClosed.
func (s *Server) Handle(service, method string, h Handler, opts ...MethodOption) error {
	return s.handle(service, method, handlers{call: h}, opts)
}

// handlers are what serves a method: stream is nil if it is no stream.
type handlers struct {
	call   Handler
	stream StreamHandler
	// answer is the declared size of answers.
	answer int
	// inline: the core's agent may call it.
	inline bool
}

func (s *Server) handle(service, method string, h handlers, opts []MethodOption) error {
	if h.call == nil {
		return fmt.Errorf("server: handle %s/%s: %w: no handler", service, method, ErrInvalid)
	}
	m := attach.Method{Service: service, Method: method, Answer: DefaultAnswerSize}
	for _, f := range opts {
		f(&m)
	}
	s.handling.Lock()
	defer s.handling.Unlock()
	if s.left {
		return fmt.Errorf("server: handle %s/%s: %w", service, method, ErrClosed)
	}
	faultpoint.Here("register.before")
	a, err := s.session.Ask(s.base, &attach.Message{Type: attach.TypeRegister, Methods: []attach.Method{m}})
	faultpoint.Here("register.after")
	if s.base.Err() != nil {
		err = ErrClosed // of base, which Ask waits with
	}
	if err == nil && len(a.MethodIDs) != 1 {
		err = fmt.Errorf("%w: %d ids for one method", ErrInvalid, len(a.MethodIDs))
	}
	if err != nil {
		return fmt.Errorf("server: handle %s/%s: %w", service, method, err)
	}
	h.answer, h.inline = m.Answer, m.Inline && h.stream == nil && s.session.Core != nil
	next := map[uint32]handlers{a.MethodIDs[0]: h}
	for id, old := range *s.handlers.Load() {
		if id != a.MethodIDs[0] {
			next[id] = old
		}
	}
	// The agent finds what it has been told of, and nothing else.
	if !h.inline {
		err = s.handleInline(a.MethodIDs[0], false)
	}
	s.handlers.Store(&next)
	if h.inline {
		err = s.handleInline(a.MethodIDs[0], true)
	}
	if err != nil {
		return fmt.Errorf("server: handle %s/%s: %w", service, method, err)
	}
	return nil
}

// streamHandler returns the handler of a method that is a stream, or nil.
func (s *Server) streamHandler(id uint32) StreamHandler { return s.handlersOf(id).stream }

// handlersOf returns the handlers of a method. The daemon may deliver requests before
// Handle has heard of the method's id; then it is waited for.
func (s *Server) handlersOf(id uint32) handlers {
	if h, ok := (*s.handlers.Load())[id]; ok {
		return h
	}
	s.handling.Lock()
	defer s.handling.Unlock()
	return (*s.handlers.Load())[id]
}

// Serve answers requests until ctx ends, Close is called or the daemon is gone,
// and returns after the last handler has; the context of the calls ends first, and
// new requests go to other processes from then on, as after Withdraw. When it returns the server is
// detached: what callers still wait for has its outcome, Handle and AllocRegion return an ErrClosed, and Close
// has nothing left to do but to unmap. It returns nil when ctx ended and an ErrClosed otherwise,
// as when the daemon has gone: then attach again, or end with an error. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	if ctx == nil {
		panic("server: nil context") // here, where Close does not wait for it
	}
	s.mu.Lock()
	if s.serving || s.closed {
		defer s.mu.Unlock()
		if s.closed {
			return fmt.Errorf("server: %w", ErrClosed)
		}
		return fmt.Errorf("server: %w: Serve was called before", ErrInvalid)
	}
	s.serving = true
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.end)()
	s.pool.run(s.workers)
	s.stop()
	s.exchanges.shut()
	// Nobody answers parts any more: whoever would send them, and wait, learns it from the daemon.
	_ = s.detach() // for Close to return
	close(s.over)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("server: %w", s.session.Err())
}

// Withdraw has the daemon give this process no new requests: they go to other processes that serve the same
// methods, as what it was given and has not begun with does, or end in ErrNoService. When it returns nil, nothing but
// what belongs to streams and large messages that have begun comes any more, and handlers go on until they return. It cannot
// be undone: Handle and HandleStream return an ErrInvalid afterwards. Errors: that of ctx, or of an ended
// connection. It is safe for concurrent use.
func (s *Server) Withdraw(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.base, cancel)()
	_, err := s.session.Ask(ctx, &attach.Message{Type: attach.TypeWithdraw})
	if s.base.Err() != nil {
		err = ErrClosed
	}
	if err != nil {
		return fmt.Errorf("server: withdraw: %w", err)
	}
	return nil
}

// Fetched waits until callers need nothing more of this process: no handler of a stream runs, the handler of every large
// request that has begun to arrive has started, and callers have fetched to the end what handlers have left for them here,
// which is messages of streams that their readers had no room for, and large answers. It is meant to follow Withdraw:
// before, there may soon be more. After Close the server drops what is left when nobody has asked for any of it within
// 3 seconds, and everything after 15. Errors: that of ctx, or ErrClosed of a server that is closed. It is safe for
// concurrent use.
func (s *Server) Fetched(ctx context.Context) error {
	if err := s.exchanges.fetched(ctx, s.base); err != nil {
		return fmt.Errorf("server: what callers have not fetched: %w", err)
	}
	return nil
}

// Close detaches. Handlers that run finish first, and their answers are sent;
// requests that no handler has started go to other processes of the service meanwhile.
// Again it waits for handlers, and perhaps not for the memory to be unmapped. An error is one of
// the socket's, and the server is closed all the same. Do not call it from a handler.
func (s *Server) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	serving := s.serving
	s.mu.Unlock()
	s.end()
	if serving {
		<-s.over
	}
	if again {
		return nil
	}
	err := s.detach()
	s.session.Release()
	s.said.flush()
	if err != nil {
		return fmt.Errorf("server: close: %w", err)
	}
	return nil
}

// leave ends the attachment; see detach.
func (s *Server) leave() error {
	// What is being handled is told to the agent before it is told to forget everything.
	s.handling.Lock()
	s.left = true
	s.handling.Unlock()
	if core := s.session.Core; core != nil {
		core.Leave(s.session.Welcome.Domain, s.id)
	}
	return s.session.Close()
}

// addLane maps a lane and tells the daemon, which delivers from it afterwards.
func (s *Server) addLane(l attach.Lane, r *slots.Ring) {
	s.lanes[l.ID].Store(&mapped{Ring: r})
	faultpoint.Here("mapped.before")
	err := s.attached().Tell(&attach.Message{Type: attach.TypeMapped, Lane: &attach.Lane{ID: l.ID}})
	faultpoint.Here("mapped.after")
	if err != nil && !errors.Is(err, ErrClosed) { // at the end it does not matter
		s.said.say(slog.LevelWarn, "rdmad: cannot confirm a lane", "lane", l.ID, "error", err)
	}
}

// removeLane forgets a lane that the daemon has closed. Its memory is unmapped when no worker
// can be looking at it because of an old hint, and no request of it is kept.
func (s *Server) removeLane(id uint16, unmap func()) {
	r := s.lanes[id].Swap(nil)
	s.attached()
	if r != nil {
		s.pool.whenQuiet(id, r, unmap)
	}
}

// resumed says again what the daemon's new core has to know, and ends the operations of
// which it knows nothing.
func (s *Server) resumed(r attach.Resumed) {
	session := s.attached()
	for id := range s.lanes {
		if s.lanes[id].Load() != nil {
			_ = session.Tell(&attach.Message{Type: attach.TypeMapped, Lane: &attach.Lane{ID: uint16(id)}}) // fails if the session ends
		}
	}
	s.ops.resumed(r.OpsTaken)
	if d, said := r.Hold(); said {
		s.exchanges.heldUp(d)
	}
}

// sessionEnded is the liberator of the pool's waits when the daemon is gone.
func (s *Server) sessionEnded(error) {
	s.attached()
	s.ops.liberate()
	s.end()
}

// end lets the handlers that run know, and makes Serve return after them.
func (s *Server) end() {
	s.stop()
	if s.pool.shut() {
		go s.decline()
	}
}

// decline has the daemon give what no handler has started to other processes, and nothing new to this one, while handlers, which
// may take for ever, go on. It returns when the daemon has, or at the end of the session. A core that ends with the
// server that lives in it keeps requests for the next one.
func (s *Server) decline() {
	if session := s.attached(); session.Core == nil || !session.Core.Stops() {
		_, _ = session.Ask(context.Background(), &attach.Message{Type: attach.TypeWithdraw})
	}
}

// attached returns the session. The session's events, which can come before Attach
// has set it and made the pool, wait here until it has.
func (s *Server) attached() *attach.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}
