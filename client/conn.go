package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Conn is an attachment to the daemon of this node. Its methods are safe for
// concurrent use. A process needs one.
type Conn struct {
	session *attach.Session
	id      int
	ended   atomic.Bool
	// ending is why, for all whose outcome that is; nil before ended.
	ending atomic.Pointer[endedError]
	// bytes bounds what this process holds in all lanes.
	bytes byteQuota
	gate  gate
	wait  waiting
	// spills are answers that the daemon has moved out of their slots.
	spills spills
	// arrived are answers in their slots that nobody has waited for.
	arrived arrived
	// over is closed when every future has its outcome after Close.
	over chan struct{}
	// life ends when no request can be sent any more: with the session, and at the
	// start of Close. It ends waits that no answer ends.
	life    context.Context
	endLife context.CancelFunc
	kept    kept
	lanes   [slots.MaxLanes]atomic.Pointer[lane]

	mu      sync.Mutex
	opened  []*lane
	methods atomic.Pointer[map[string]*Method]
	// looked are methods that are being looked up for the first time.
	looked map[string]*Method
	queue  *Queue // see Queue
	pace   pace
}

// Attach connects to the daemon that listens on socket; empty means the
// environment variable RDMAD_SOCKET or else DefaultSocket. The caller must
// Close the connection. Errors: ErrNotRunning, ErrPermission, ErrVersion,
// ErrLimit, ErrClosed if the daemon went away meanwhile, again and again (try later), one that wraps
// os.ErrDeadlineExceeded if it has not answered within 10 s, or ctx's.
func Attach(ctx context.Context, socket string, opts ...Option) (*Conn, error) {
	o := options{name: filepath.Base(os.Args[0]), wait: defaultWait()}
	for _, f := range opts {
		f(&o)
	}
	c := &Conn{over: make(chan struct{}), looked: make(map[string]*Method)}
	c.life, c.endLife = context.WithCancel(context.Background())
	c.methods.Store(&map[string]*Method{})
	c.wait.room = freeSleep
	c.wait.conn, c.wait.poll.Mode, c.wait.poll.Goroutines, c.wait.linger.Goroutines = c, o.wait, true, true
	// Held until session is set: the session's events lock it too.
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := attach.Open(ctx, socket, attach.Hello{Role: attach.RoleClient, Name: o.name}, attach.Events{
		Lane:    c.addLane,
		Closed:  c.laneClosed,
		Spilled: c.spilled,
		Ended:   c.sessionEnded,
	})
	if err != nil {
		c.endLife()
		return nil, fmt.Errorf("client: %w", err)
	}
	c.session, c.id, c.bytes.most = s, s.Welcome.ID, s.Welcome.Bytes
	return c, nil
}

// Node returns the name of this node.
func (c *Conn) Node() string { return c.session.Welcome.Node }

// Domain returns the name of the domain that the daemon put this process in.
func (c *Conn) Domain() string { return c.session.Welcome.Domain }

// Done is closed when the connection has ended, by Close or because the daemon
// is gone; that a core of the daemon dies or is replaced does not end it. Requests under way have their outcomes then, and all
// others are an ErrClosed. To go on Close it and Attach again, which is an ErrNotRunning until the next daemon runs:
// methods, queues and regions belong to the connection, and are to be made anew.
func (c *Conn) Done() <-chan struct{} { return c.session.Done() }

// Call sends req to target and returns the answer, a new slice. It waits for
// room in the ring and for the answer until ctx ends; ctx's deadline also
// travels with the request, which is not started after it.
func (c *Conn) Call(ctx context.Context, target string, req []byte) ([]byte, error) {
	m, err := c.Method(ctx, target)
	if err != nil {
		return nil, err
	}
	return m.Call(ctx, req)
}

// Go sends req to target and returns a future for the answer; see Method.Go.
func (c *Conn) Go(ctx context.Context, target string, req []byte) (*Future, error) {
	m, err := c.Method(ctx, target)
	if err != nil {
		return nil, err
	}
	return m.Go(ctx, req)
}

// Post sends msg to target one way; see Method.Post.
func (c *Conn) Post(ctx context.Context, target string, msg []byte) error {
	m, err := c.Method(ctx, target)
	if err != nil {
		return err
	}
	return m.Post(ctx, msg)
}

// Status returns the daemon's state as JSON: node, peers, lanes, services,
// workers and counters, as "rdmad status --json" prints it. Errors: ErrClosed,
// ErrLimit for a state that is too large, or ctx's.
func (c *Conn) Status(ctx context.Context) (json.RawMessage, error) {
	a, err := c.session.Ask(ctx, &attach.Message{Type: attach.TypeStatus})
	if err != nil {
		return nil, fmt.Errorf("client: status: %w", err)
	}
	return a.StatusJSON, nil
}

// Ping exchanges a message with the daemon of a node and returns how long the
// round trip over the bootstrap connection took; 0 for this node. Errors: ErrNoService for a node that is no peer,
// not connected, or does not answer within 4 seconds, ErrClosed, or ctx's.
func (c *Conn) Ping(ctx context.Context, node string) (time.Duration, error) {
	a, err := c.session.Ask(ctx, &attach.Message{Type: attach.TypePing, Node: node})
	if err != nil {
		return 0, fmt.Errorf("client: ping %s: %w", node, err)
	}
	return time.Duration(a.RTT), nil
}

// Close detaches. Requests without an outcome get one (ErrNotExecuted or
// ErrMaybeExecuted), waiters return, and reserved requests must be committed or
// aborted for Close to return. Close may be called more than once; one that finds another
// under way returns when there are outcomes, and perhaps before the memory is unmapped. An
// error is one of the socket's, and the connection is closed all the same.
func (c *Conn) Close() error {
	if !c.gate.close() {
		<-c.over
		return nil
	}
	c.sessionEnded(errClosedHere) // frees every waiter
	c.wait.failAll()              // who keeps the gate may wait for one of these
	<-c.gate.idle
	c.wait.watch.end() // nobody leads any more
	c.wait.alarm.stop()
	c.wait.failAll()
	close(c.over)
	err := c.session.Close()
	c.session.Release()
	if err != nil {
		return fmt.Errorf("client: close: %w", err)
	}
	return nil
}

// endError is an ErrClosed that says why, as far as that is known: the same, whoever notices first.
// It was made once, however many requests end with it.
func (c *Conn) endError() error {
	if e := c.ending.Load(); e != nil {
		return e
	}
	return errClosedHere // Close has begun
}

// errClosedHere is the end of a connection by Close.
var errClosedHere = fmt.Errorf("%w: by this process", ErrClosed)

// endedError is an ErrClosed with a reason for people. What that wraps, which may be an ErrLimit, is not what became of a call.
type endedError struct{ text string }

func (e *endedError) Error() string { return e.text }

func (e *endedError) Unwrap() error { return ErrClosed }

// outcome waits, at a gate that is shut, for the outcome that Close gives, or for the end of ctx. Close waits for all who have entered,
// and the caller may be one of them, elsewhere: it gives outcomes before.
func (c *Conn) outcome(ctx context.Context, f *Future) {
	select {
	case <-f.channel():
	case <-c.over:
	case <-ctx.Done():
	}
}

// addLane is told of each lane by the session, before the answer that names it.
func (c *Conn) addLane(l attach.Lane, r *slots.Ring) {
	c.mu.Lock()
	n := &lane{conn: c, id: l.ID, class: l.Class, peer: l.Peer, near: l.Peer == c.session.Welcome.Node, ring: r, single: l.Geometry.Capacity(1), quota: l.Quota, calls: make([]call, l.Geometry.Slots), claimers: claimers{turn: make(chan struct{}, 1)}}
	c.opened = append(c.opened, n)
	c.mu.Unlock()
	c.lanes[l.ID].Store(n)
}

// laneClosed deals with a lane that the daemon does not know any more: a core that took
// over could not adopt it. Nobody looks at the ring again, so it is closed from here, and
// what is under way in it gets its outcome.
func (c *Conn) laneClosed(id uint16, _ func()) {
	if l := c.lanes[int(id)%slots.MaxLanes].Load(); l != nil && c.gate.enter() {
		defer c.gate.leave()
		l.lost.Store(true)
		l.ring.SetState(slots.LaneClosed)
		l.ring.WakeFree()
		c.wait.failLane(l)
		c.session.Wake() // whoever leads, and waits for one of these, sleeps on the bell
	}
}

var errLaneLost = errors.New("the daemon has lost the lane")

// sessionEnded is the liberator of every wait in this process when the daemon
// is gone or the connection is closed.
func (c *Conn) sessionEnded(why error) {
	c.ending.CompareAndSwap(nil, &endedError{why.Error()})
	c.ended.Store(true)
	c.endLife()
	c.mu.Lock()
	session, lanes := c.session, c.opened
	c.mu.Unlock()
	if session != nil {
		session.StopAsking() // Close waits for those who ask
	}
	for _, l := range lanes {
		l.ring.WakeFree()
	}
	c.wait.liberate()
}

// gate counts the calls that use the shared memory, so that Close can wait for
// them before it unmaps it.
type gate struct {
	n     atomic.Int64
	idle  chan struct{}
	once  sync.Once
	empty sync.Once // closes idle
}

const gateClosed = -1 << 40

// present panics without a context, before anything is held that a panic further on would hold for ever.
func present(ctx context.Context) {
	if ctx == nil {
		panic("client: nil context")
	}
}

func (g *gate) init() { g.once.Do(func() { g.idle = make(chan struct{}) }) }

// enter reports whether the gate is open; if so leave must follow.
func (g *gate) enter() bool { return g.n.Add(1) > 0 || g.refuse() }

// refuse keeps enter small enough to be inlined.
//
//go:noinline
func (g *gate) refuse() bool {
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.n.Add(-1) == gateClosed {
		g.emptied()
	}
}

// emptied closes idle. Those who find the gate closed pass through here too.
func (g *gate) emptied() {
	g.init()
	g.empty.Do(func() { close(g.idle) })
}

// close shuts the gate and reports whether it was this call that did so. idle
// is closed when everybody has left.
func (g *gate) close() bool {
	g.init()
	for {
		n := g.n.Load()
		if n < 0 {
			return false
		}
		if g.n.CompareAndSwap(n, n+gateClosed) {
			if n == 0 {
				g.emptied()
			}
			return true
		}
	}
}
