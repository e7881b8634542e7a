package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Handler answers a request. It runs on one of the server's workers, at most
// Workers of them at once. A returned error reaches the caller as an
// ErrRemote with its text; so does a panic. The Call is valid until it returns.
type Handler func(c *Call) error

// Server is an attachment to the daemon of this node that answers requests. Its
// methods are safe for concurrent use.
type Server struct {
	session *attach.Session
	id      int
	workers int
	lanes   [slots.MaxLanes]atomic.Pointer[slots.Ring]
	pool    pool
	ops     opQueue

	// handling lets one Handle run at a time. mu must not be held while the
	// daemon is asked: the session's events lock it.
	handling sync.Mutex
	mu       sync.Mutex
	handlers atomic.Pointer[map[uint32]Handler]
	serving  bool // Serve runs or has run
	closed   bool
	// base is the context of all calls; it ends with Serve.
	base context.Context
	stop context.CancelFunc
}

// Attach connects to the daemon that listens on socket; empty means the
// environment variable RDMAD_SOCKET or else /run/rdmad/rdmad.sock. The caller
// must Close the server. Errors: ErrNotRunning, ErrPermission, ErrVersion,
// ErrLimit, or ctx's.
func Attach(ctx context.Context, socket string, opts ...Option) (*Server, error) {
	o := options{name: filepath.Base(os.Args[0]), workers: defaultWorkers}
	for _, f := range opts {
		f(&o)
	}
	s := &Server{workers: o.workers}
	s.base, s.stop = context.WithCancel(context.Background())
	s.handlers.Store(&map[uint32]Handler{})
	// Held until session is set: the session's events use it.
	s.mu.Lock()
	defer s.mu.Unlock()
	session, err := attach.Open(ctx, socket, attach.Hello{Role: attach.RoleService, Name: o.name}, attach.Events{
		Lane:   s.addLane,
		Closed: s.removeLane,
		Ended:  s.sessionEnded,
	})
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("server: %w", err)
	}
	s.session, s.id = session, session.Welcome.ID
	s.pool.init(s)
	s.ops.init(session)
	return s, nil
}

// Node returns the name of this node.
func (s *Server) Node() string { return s.session.Welcome.Node }

// Handle offers a method to callers on this and other nodes, from the return of
// this call on; they are answered once Serve runs. Names have 1 to 63 letters,
// digits, dots, dashes or underscores. Errors: ErrInvalid, ErrLimit, ErrClosed.
func (s *Server) Handle(service, method string, h Handler, opts ...MethodOption) error {
	m := attach.Method{Service: service, Method: method, Answer: DefaultAnswerSize}
	for _, f := range opts {
		f(&m)
	}
	s.handling.Lock()
	defer s.handling.Unlock()
	a, err := s.session.Ask(s.base, &attach.Message{Type: attach.TypeRegister, Methods: []attach.Method{m}})
	if s.base.Err() != nil {
		err = ErrClosed // of base, which Ask waits with
	}
	if err == nil && len(a.MethodIDs) != 1 {
		err = fmt.Errorf("%w: %d ids for one method", ErrInvalid, len(a.MethodIDs))
	}
	if err != nil {
		return fmt.Errorf("server: handle %s/%s: %w", service, method, err)
	}
	next := map[uint32]Handler{a.MethodIDs[0]: h}
	for id, old := range *s.handlers.Load() {
		if id != a.MethodIDs[0] {
			next[id] = old
		}
	}
	s.handlers.Store(&next)
	return nil
}

// handler returns the handler of a method, or nil. The daemon may deliver requests
// before Handle has heard of the method's id; then it is waited for.
func (s *Server) handler(id uint32) Handler {
	if h := (*s.handlers.Load())[id]; h != nil {
		return h
	}
	s.handling.Lock()
	defer s.handling.Unlock()
	return (*s.handlers.Load())[id]
}

// Serve answers requests until ctx ends, Close is called or the daemon is gone,
// and returns after the last handler has; the context of the calls ends first. It
// returns nil when ctx ended and an ErrClosed otherwise. It may be called once.
func (s *Server) Serve(ctx context.Context) error {
	s.mu.Lock()
	if s.serving || s.closed {
		s.mu.Unlock()
		return fmt.Errorf("server: %w: Serve or Close was called before", ErrInvalid)
	}
	s.serving = true
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.end)()
	s.pool.run(s.workers)
	s.stop()
	if ctx.Err() != nil {
		return nil
	}
	if err := s.session.Err(); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return fmt.Errorf("server: %w", ErrClosed)
}

// Close detaches. Handlers that run finish first, and their answers are sent;
// requests that no handler has started go to other processes of the service.
// Do not call it from a handler.
func (s *Server) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	serving := s.serving
	s.mu.Unlock()
	s.end()
	if serving {
		<-s.pool.over
	}
	if again {
		return nil
	}
	err := s.session.Close()
	s.session.Release()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("server: close: %w", err)
	}
	return nil
}

// addLane maps a lane and tells the daemon, which delivers from it afterwards.
func (s *Server) addLane(l attach.Lane, r *slots.Ring) {
	s.lanes[l.ID].Store(r)
	err := s.attached().Tell(&attach.Message{Type: attach.TypeMapped, Lane: &attach.Lane{ID: l.ID}})
	if err != nil && !errors.Is(err, ErrClosed) { // at the end it does not matter
		slog.Warn("rdmad: cannot confirm a lane", "lane", l.ID, "error", err)
	}
}

// removeLane forgets a lane in which the daemon has nothing under way. Its memory
// is unmapped when no worker can be looking at it because of an old hint.
func (s *Server) removeLane(id uint16, unmap func()) {
	s.lanes[id].Store(nil)
	s.attached()
	s.pool.whenQuiet(unmap)
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
	s.pool.shut()
}

// attached returns the session. The session's events, which can come before Attach
// has set it and made the pool, wait here until it has.
func (s *Server) attached() *attach.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}
