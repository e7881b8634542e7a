package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// DefaultSocket is where a daemon listens unless told otherwise.
const DefaultSocket = "/run/rdmad/rdmad.sock"

// SocketEnv is the environment variable that names the socket.
const SocketEnv = "RDMAD_SOCKET"

// SocketPath returns socket, or what SocketEnv says, or DefaultSocket.
func SocketPath(socket string) string {
	if socket == "" {
		socket = os.Getenv(SocketEnv)
	}
	if socket == "" {
		socket = DefaultSocket
	}
	return socket
}

// Session is the worker's end of an attachment: the shared segments, the lanes,
// and questions to the daemon. Its methods are safe for concurrent use.
type Session struct {
	Welcome Welcome
	// Bells and Bell are how to wake the domain's agent; Rings are the hint
	// rings. Nil for RoleTool.
	Bells *slots.Bells
	Bell  *shm.Bell
	Rings *slots.WorkerRings
	// Ops is the ring of operations on regions, which only services use.
	Ops *slots.OpRing
	// Pool is memory for large messages.
	Pool Pool
	// Core is the daemon's core if it is in this process, else nil.
	Core Core
	// pages wake a client that is parked; see Pages.
	pages atomic.Pointer[shm.Pages]

	conn   *Conn
	socket string // that of the daemon
	events Events
	serves bool // RoleService
	done   chan struct{}
	// quiet is closed when nobody is to wait for the daemon's answers any more.
	quiet     chan struct{}
	quietOnce sync.Once
	// asks bounds the questions without an answer, whether somebody waits for that or not: the daemon
	// takes more for an attack.
	asks chan struct{}
	// left is how many of them do not count there because nobody waits: at most maxLeft. Guarded by mu.
	left int
	// allocs bounds those that ask for regions, among them such as nobody waits for any more.
	allocs  chan struct{}
	backlog backlog
	mu      sync.Mutex
	segs    map[*shm.Segment]bool // what is mapped
	lanes   map[uint16]*shm.Segment
	// unmapped are the lanes without room, and reminding says that remind runs.
	unmapped  map[uint16]unmappedLane
	reminding bool
	err       error // why the session ended
	seq       uint64
	pending   map[uint64]*question
	regions   map[slots.RegionID]*Region
}

// Events are what a session tells its owner from the goroutine that reads the
// control connection. The functions must not block for long and must not call
// Close.
type Events struct {
	// Lane is called with a mapped lane before any answer that names it.
	Lane func(l Lane, r *slots.Ring)
	// Closed is called when a lane is closed for good. The owner calls unmap
	// when it uses the lane's memory no more, or leaves that to Release.
	Closed func(id uint16, unmap func())
	// Spilled is called with answers that the daemon has moved out of their slots.
	// They are the owner's.
	Spilled func(answers []slots.Spilled)
	// Gone is called when a caller of the lane does not exist any more.
	Gone func(lane uint16, g Gone)
	// Resumed is called when another core of the daemon has taken over. The owner says
	// again what lanes it has mapped, if it is a service; answers and questions under
	// way are the session's business.
	Resumed func(r Resumed)
	// Ended is called once, when the session has ended for whatever reason.
	Ended func(err error)
}

// Open attaches to the daemon on socket. The caller must Close the session.
// Errors wrap ErrNotRunning, ErrPermission, ErrVersion or ErrLimit.
func Open(ctx context.Context, socket string, hello Hello, ev Events) (*Session, error) {
	socket = SocketPath(socket)
	hello.Protocol, hello.ABI = Protocol, shm.ABIVersion
	for try := 1; ; try++ {
		s, err := open(ctx, socket, hello, ev)
		if err == nil {
			go s.read()
			return s, nil
		}
		// A core that dies in the middle of it is followed by another.
		if lost := new(lostError); !errors.As(err, &lost) || try == openTries || ctx.Err() != nil {
			return nil, err
		}
	}
}

// openTries is how often a connection is tried that ends before the daemon has said
// anything.
const openTries = 5

// lostError is the end of a connection without a word.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// open attaches, once.
func open(ctx context.Context, socket string, hello Hello, ev Events) (*Session, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return nil, DialError(socket, err)
	}
	s := &Session{
		Core: coreOf(ctx, socket), conn: NewConn(raw.(*net.UnixConn)), socket: socket, events: ev, done: make(chan struct{}), quiet: make(chan struct{}), asks: make(chan struct{}, MaxAsks/2), allocs: make(chan struct{}, MaxAsks/2),
		segs: make(map[*shm.Segment]bool), lanes: make(map[uint16]*shm.Segment), pending: make(map[uint64]*question),
		regions: make(map[slots.RegionID]*Region), unmapped: make(map[uint16]unmappedLane), serves: hello.Role == RoleService,
	}
	s.Pool.session = s
	if err := s.handshake(ctx, hello); err != nil {
		if s.Rings != nil {
			s.Rings.Depart()
		}
		s.conn.forgo()
		s.release()
		return nil, fmt.Errorf("attach to %s: %w", socket, err)
	}
	return s, nil
}

// HandshakeLimit is how long a daemon may take to welcome who attaches, unless the context ends
// sooner. The error wraps os.ErrDeadlineExceeded.
const HandshakeLimit = 10 * time.Second

func (s *Session) handshake(ctx context.Context, hello Hello) error {
	// Before the end of ctx may set one that is past.
	if err := s.conn.SetDeadline(time.Now().Add(HandshakeLimit)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	err := s.exchange(hello)
	if !stop() {
		// The past deadline is set or about to be; what it has ended says nothing of the daemon.
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
		return errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return err
	}
	return s.conn.SetDeadline(time.Time{})
}

// exchange says hello and takes the welcome.
func (s *Session) exchange(hello Hello) error {
	faultpoint.Here("attach.connected")
	if err := s.conn.Send(&Message{Type: TypeHello, Hello: &hello}); err != nil {
		return &lostError{err}
	}
	faultpoint.Here("attach.hello_sent")
	m, fds, err := s.conn.Recv()
	if err != nil {
		if errors.Is(err, ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return &lostError{err}
		}
		return err
	}
	faultpoint.Here("attach.welcomed")
	return s.welcome(m, fds, hello.Role)
}

func (s *Session) welcome(m *Message, fds []int, role Role) (err error) {
	defer func() { s.conn.Release(fds) }()
	if m.Fail != nil {
		return m.Fail.Err()
	}
	if m.Type == TypeGoodbye {
		return fmt.Errorf("%w: %s", ErrClosed, m.Reason)
	}
	if m.Type != TypeWelcome || m.Welcome == nil {
		return fmt.Errorf("%w: a %q message instead of a welcome", ErrInvalid, m.Type)
	}
	if err := shm.CheckABI(m.Welcome.ABI); err != nil {
		return fmt.Errorf("%w: the daemon has %w", ErrVersion, err)
	}
	s.Welcome = *m.Welcome
	if role == RoleTool {
		return nil
	}
	if len(fds) < 3 || len(fds) > 4 || s.Welcome.ID < 1 || s.Welcome.ID > slots.MaxOwner {
		return fmt.Errorf("%w: a welcome with %d descriptors and id %d", ErrInvalid, len(fds), s.Welcome.ID)
	}
	domain, err := s.open(fds[0], shm.KindDomain, slots.DomainSegmentSize)
	if err != nil {
		return err
	}
	worker, err := s.open(fds[1], shm.KindWorker, slots.WorkerSegmentSize)
	if err != nil {
		return err
	}
	s.Bell, fds[2] = shm.OpenBell(fds[2]), -1
	s.Bells = slots.NewBells(domain.Bytes())
	s.Rings = slots.NewWorkerRings(worker.Bytes())
	s.Ops = slots.NewOpRing(worker.Bytes())
	if len(fds) == 4 {
		s.setPages(fds[3])
		fds[3] = -1
	}
	faultpoint.Here("attach.mapped")
	return nil
}

// openSegment is shm.Map, but for tests.
var openSegment = shm.Map

// open maps a segment, and leaves fd to the caller.
func (s *Session) open(fd int, kind shm.Kind, size int) (*shm.Segment, error) {
	seg, err := openSegment(fd, kind, size)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.segs[seg] = true
	s.mu.Unlock()
	return seg, nil
}

// read serves the control connection until it ends.
func (s *Session) read() {
	var err error
	for {
		var m *Message
		var fds []int
		s.conn.Reserve()
		if m, fds, err = s.conn.Recv(); err != nil {
			if !errors.Is(err, ErrClosed) { // what came is no message: nobody reads on behind it
				err = fmt.Errorf("%w: %w", ErrClosed, err)
			}
			err = fmt.Errorf("%w (the daemon on %s ended without a word: see its log, and attach again when it runs)", err, s.socket)
			break
		}
		if m.Type == TypeGoodbye {
			s.conn.Release(fds)
			err = fmt.Errorf("%w: %s (the daemon's socket: %s)", ErrClosed, m.Reason, s.socket)
			break
		}
		err = errors.Join(s.mapAgain(), s.handle(m, fds))
		s.conn.Release(fds)
		if err != nil {
			// Whatever it was, the connection is over, and that is what callers are to know it by.
			err = fmt.Errorf("%w: %w (the daemon's socket: %s)", ErrClosed, err, s.socket)
			break
		}
	}
	s.conn.Unreserve()
	s.end(err)
}

// handle deals with a message. Of the descriptors that came with it it puts -1 in the place of those that it keeps.
func (s *Session) handle(m *Message, fds []int) error {
	switch m.Type {
	case TypeLane:
		return s.lane(m, fds)
	case TypeRegion:
		return s.region(m, fds)
	case TypeSpilled:
		return s.spilled(m.Seq, fds)
	case TypeStatusIs:
		return s.status(m, fds)
	case TypeClosed:
		if m.Lane != nil {
			s.closed(m.Lane.ID)
		}
	case TypeGone:
		if m.Lane != nil && m.Gone != nil && s.events.Gone != nil {
			s.events.Gone(m.Lane.ID, *m.Gone)
		}
	case TypeResumed:
		return s.resumed(m, fds)
	default:
		if m.Route != nil {
			if err := s.noRoomFor(m.Route.Lanes); err != nil {
				m.Fail = FailFor(err)
			}
		}
		s.answer(m)
	}
	return nil
}

func (s *Session) lane(m *Message, fds []int) error {
	if m.Lane == nil || len(fds) != 1 || m.Lane.Geometry.Check() != nil || int(m.Lane.ID) >= slots.MaxLanes {
		return fmt.Errorf("%w: a malformed lane message", ErrInvalid)
	}
	faultpoint.Here("lane.received")
	s.mu.Lock()
	known := s.lanes[m.Lane.ID] != nil
	s.mu.Unlock()
	if known {
		return nil // from a core that has not heard yet that it is here
	}
	s.forgetUnmapped(m.Lane.ID)
	kept, err := s.mapLane(*m.Lane, fds[0])
	if kept {
		fds[0] = -1
	}
	return err
}

// status takes a status that is too large for a message out of the memfd that comes with it.
func (s *Session) status(m *Message, fds []int) error {
	if m.lost {
		m.Fail = FailFor(fmt.Errorf("%w: %w", ErrLimit, shm.ErrFDsLost))
	}
	if len(fds) != 1 || m.StatusJSON != nil {
		s.answer(m)
		return nil
	}
	data, err := shm.CopySealed(fds[0], MaxStatus)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && len(data) == 0:
		m.Fail = FailFor(fmt.Errorf("%w: the daemon has taken its answer back, since others were asked for meanwhile or it was not read in time: ask again", ErrLimit))
	case err != nil:
		return err
	}
	_ = s.Tell(&Message{Type: TypeTaken, Seq: m.Seq}) // without it the daemon has its memory back later
	m.StatusJSON = data
	s.answer(m)
	return nil
}

// spilled takes answers out of the spill that has come with a message.
func (s *Session) spilled(seq uint64, fds []int) error {
	if len(fds) != 1 {
		return fmt.Errorf("%w: a malformed spilled message", ErrInvalid)
	}
	spill, err := shm.CopySealed(fds[0], slots.MaxSpill)
	if err != nil {
		return err
	}
	_ = s.Tell(&Message{Type: TypeTaken, Seq: seq}) // lost if the daemon is gone, or dies now: what it has sent counts
	if len(spill) == 0 {
		return nil // dropped: the daemon has disconnected this process
	}
	answers, err := slots.ParseSpill(spill)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if s.events.Spilled != nil {
		s.events.Spilled(answers)
	}
	return nil
}

// closed tells the owner that a lane is closed.
func (s *Session) closed(id uint16) {
	s.mu.Lock()
	seg := s.lanes[id]
	delete(s.lanes, id)
	s.mu.Unlock()
	s.forgetUnmapped(id)
	if seg == nil || s.events.Closed == nil {
		return
	}
	s.events.Closed(id, func() {
		s.mu.Lock()
		mapped := s.segs[seg]
		delete(s.segs, seg)
		s.mu.Unlock()
		if mapped {
			_ = seg.Close()
		}
	})
}

// end marks the session as over and frees everybody who waits for an answer.
func (s *Session) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	err = s.err
	s.pending = nil
	s.mu.Unlock()
	s.Pool.shut()
	_ = s.conn.Close()
	if s.events.Ended != nil {
		s.events.Ended(err)
	}
	// Last: Close waits for it, and what Ended uses may be unmapped afterwards.
	close(s.done)
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Listener returns what the kernel says of the process that listens, or listened, on the daemon's socket: its id in
// the caller's pid namespace, 0 if it has none there, and its user.
func (s *Session) Listener() (*unix.Ucred, error) { return s.conn.credentials() }

// Err returns why the session ended, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session. The caller must not touch the shared memory any more,
// which the daemon is told, so that it frees what is left at once. The segments
// stay mapped until Release. That the daemon has ended the session before, or ends
// it at the same moment, is no error.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.err == nil {
		s.err = ErrClosed
	}
	s.mu.Unlock()
	faultpoint.Here("close.before")
	if s.Rings != nil {
		s.Rings.Depart()
	}
	_ = s.conn.Send(&Message{Type: TypeBye}) // lost if the daemon is gone
	faultpoint.Here("close.said")
	err := s.conn.Close()
	faultpoint.Here("close.after")
	<-s.done
	if errors.Is(err, net.ErrClosed) {
		return nil // closed when the session ended
	}
	return err
}

// Release unmaps all segments, after Close. Nothing taken from them may be used
// any more.
func (s *Session) Release() { s.release() }

func (s *Session) release() {
	_ = s.conn.Close()
	s.mu.Lock()
	for _, r := range s.regions {
		r.mu.Lock()
		r.seg = nil
		r.mu.Unlock()
	}
	for seg := range s.segs {
		_ = seg.Close()
	}
	for _, u := range s.unmapped {
		shm.CloseFDs([]int{u.fd})
	}
	clear(s.unmapped)
	clear(s.segs)
	s.mu.Unlock()
	if s.Bell != nil {
		_ = s.Bell.Close()
	}
	s.NoPages(s.pages.Load())
}
