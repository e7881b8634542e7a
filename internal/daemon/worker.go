package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// worker is an attached process.
type worker struct {
	domain *domain
	conn   *attach.Conn
	id     int // 0 for tools
	role   attach.Role
	name   string
	// handlers is how many requests it says to work on at once.
	handlers int
	pid      int
	uid, gid uint32
	// groups are its other groups, as of when it connected; only attach needs them.
	groups []uint32
	abi    uint32 // of its library
	pidfd  int    // -1 if the kernel has none
	// death is the pidfd while, or after, the end of the process is waited for.
	death   *os.File
	seg     *shm.Segment
	view    *agent.Worker
	pager   pager
	spiller *spiller
	bytes   int  // the most bytes of slots that it was told it may hold
	bye     bool // it has said that it touches its slots no more
	// ended: the daemon has ended the attachment, and not the process, which may say goodbye later.
	ended atomic.Bool
	// struck are the errors for which it was disconnected. holds: it is one of the holders of
	// its domain, which is retired. Both are guarded by conductor.mu.
	struck int
	holds  bool
	// adopted: it was attached to another core, which had taken opsTaken operations.
	adopted  bool
	opsTaken uint64
	// opsLeft are its operations until the agent may take them.
	opsLeft *agent.WorkerOps
	// withdrawn: it serves nothing any more; guarded by conductor.mu.
	withdrawn bool
	// welcomed: it has its welcome. serves has a bit for each method that it serves, by
	// number. Both are guarded by conductor.mu.
	welcomed bool
	serves   []byte
	// regions is what it has of regions; guarded by conductor.mu.
	regions regionUse

	// trace is what a tool follows, or has followed; guarded by conductor.mu.
	trace *traceRun

	// mu orders what the worker is sent: a lane before the answer that names
	// it. given are the lanes it has.
	mu    sync.Mutex
	given map[uint16]bool
	// asks has a place for each question that waits for its answer. asking are their numbers, and later those of the ones that it
	// is to ask again; both belong to askMu, which nobody holds while something is sent: who has an answer may ask the next question,
	// and its place must be free by then.
	asks   chan struct{}
	askMu  sync.Mutex
	asking map[uint64]bool
	later  []uint64
	// gone is closed when it says nothing more, and nobody waits for answers. Who deals with what it has said may use it.
	gone chan struct{}
	// lent are the answers that did not fit a message.
	lent lent
}

const helloTimeout = 5 * time.Second

func (c *conductor) acceptWorkers(l *net.UnixListener) {
	door := newDoorkeeper()
	defer door.release()
	for {
		sock, err := l.AcceptUnix()
		if err != nil {
			if !c.acceptAgain("workers", err) {
				return
			}
			if lacksDescriptors(err) {
				door.refuse(l, err, &c.counts().RefusedConnections)
			}
			continue
		}
		if !c.spawn(func() { c.serveWorker(attach.NewConn(sock)) }) {
			_ = sock.Close()
		}
	}
}

// serveWorker is the life of an attachment.
func (c *conductor) serveWorker(conn *attach.Conn) {
	defer c.farewell(conn)()
	w, err := c.attach(conn)
	if err != nil {
		atomic.AddUint64(&c.counts().RefusedConnections, 1)
		event.WorkerRefused.On(&c.log).Err(err).Msg("worker refused")
		_ = conn.Send(&attach.Message{Type: attach.TypeFail, Fail: attach.FailFor(err)})
		_ = conn.Close()
		return
	}
	c.converse(w)
}

// farewell makes a worker be told when the core stops, until the function that it returns
// is called.
func (c *conductor) farewell(conn *attach.Conn) (stop func() bool) {
	return context.AfterFunc(c.ctx, func() {
		_ = conn.Offer(&attach.Message{Type: attach.TypeGoodbye, Reason: "the daemon is stopping"}) // not waiting for one that does not read
		_ = conn.Close()
	})
}

// converse does what a worker says until its end.
func (c *conductor) converse(w *worker) {
	conn := w.conn
	log := c.log.With().Int("worker", w.id).Str("name", w.name).Int("pid", w.pid).Logger()
	log.Debug().Str("role", string(w.role)).Str("domain", w.domain.name).Msg("worker attached")
	for {
		m, fds, err := conn.Recv()
		if len(fds) > 0 {
			shm.CloseFDs(fds) // workers have no descriptors to give
			w.offend()
		}
		if err == nil {
			err = c.handleWorker(w, m)
		}
		if err != nil {
			if !errors.Is(err, attach.ErrClosed) && !errors.Is(err, attach.ErrBusy) {
				w.ended.Store(true)
				atomic.AddUint64(&c.counts().RefusedConnections, 1)
				event.WorkerProtocol.On(&log).Err(err).Msg("worker broke the protocol")
				_ = conn.Send(&attach.Message{Type: attach.TypeGoodbye, Reason: err.Error()})
			}
			break
		}
	}
	close(w.gone) // before it is closed here: whoever fails to answer must not take the end for the daemon's
	_ = conn.Close()
	c.detach(w)
	log.Debug().Msg("worker detached")
}

// attach does the handshake with a new process and makes it a worker.
func (c *conductor) attach(conn *attach.Conn) (_ *worker, err error) {
	w := &worker{conn: conn, pidfd: -1, given: make(map[uint16]bool), asks: make(chan struct{}, askPlaces), asking: make(map[uint64]bool), gone: make(chan struct{})}
	defer func() {
		if err != nil {
			w.closePidfd()
		}
	}()
	if err := w.credentials(conn.Socket()); err != nil {
		return nil, err
	}
	if !c.workerGate.Enter(w) {
		return nil, fmt.Errorf("%w: %v has tried to attach too often in vain", attach.ErrLimit, w)
	}
	defer func() {
		if err == nil {
			c.workerGate.Return(w)
		}
	}()
	until := time.Now().Add(helloTimeout)
	c.attaching.Enter(conn.Socket(), fmt.Sprint("user ", w.uid), c.mostAttaching())
	m, err := receiveHello(conn, until)
	c.attaching.Leave(conn.Socket())
	if err != nil {
		return nil, fmt.Errorf("waiting for hello: %w", err)
	}
	if err := checkHello(c.node, m); err != nil {
		return nil, err
	}
	w.role, w.name, w.handlers, w.abi = m.Hello.Role, printable.Text(m.Hello.Name), m.Hello.Handlers, m.Hello.ABI
	if err := c.place(w); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	// No lane before the welcome: whoever makes one finds w from now on.
	w.mu.Lock()
	err = c.enlist(w)
	if err != nil {
		w.mu.Unlock()
		return nil, err
	}
	err = c.welcomeWorker(w, m.Seq)
	w.mu.Unlock()
	if err != nil {
		c.mu.Lock()
		w.bye = true // it has got nothing that it could touch
		c.mu.Unlock()
		c.detach(w)
		return nil, err
	}
	if w.role == attach.RoleService {
		w.giveAll()
	}
	return w, nil
}

// helloLast is for how long a hello is waited for once more.
const helloLast = 100 * time.Millisecond

// receiveHello waits for the first message of a process until then. One that is in the socket counts, though this process has stood still
// and its time is over by now: a socket whose deadline has passed is not looked at.
func receiveHello(conn *attach.Conn, until time.Time) (*attach.Message, error) {
	for last := false; ; last = true {
		if err := conn.SetDeadline(until); err != nil {
			return nil, err
		}
		m, fds, err := conn.Recv()
		shm.CloseFDs(fds)
		if last || !errors.Is(err, os.ErrDeadlineExceeded) {
			return m, err
		}
		until = time.Now().Add(helloLast)
	}
}

// enlist gives a new process what it has here: in the domain that it belongs to, or in the successor of that.
func (c *conductor) enlist(w *worker) error {
	if w.role != attach.RoleTool { // which has nothing, and waits for nobody
		c.mapping.Lock() // nothing below waits for a process
		defer c.mapping.Unlock()
	}
	err := w.domain.enlist(w)
	for errors.Is(err, agent.ErrRetired) {
		if err = c.place(w); err == nil { // in its successor
			err = w.domain.enlist(w)
		}
	}
	return err
}

// bell is what wakes the agent of the worker's domain. All of its processes share one, and each can have it keep those who ring it waiting (F_SETFL,
// and a full counter): who is in this process gets the agent's own, or a worker could stop the core.
func (w *worker) bell() *shm.Bell {
	if w.own() {
		return w.domain.agent.Commands.Bell()
	}
	return w.domain.bell
}

// holdMillis is for how long requests can be held up on the way, in milliseconds: while a core that hangs, here or at a peer, which
// is taken to have the same configuration, is found out and replaced, and while a lost link is waited for.
func (c *conductor) holdMillis() int64 {
	n := &c.live().Node
	return (n.LinkHold + handoff.HangBound(n.HangLimit)).Milliseconds()
}

// welcomeWorker sends a worker its welcome.
func (c *conductor) welcomeWorker(w *worker, seq uint64) error {
	c.identifyFor(w)
	welcome := &attach.Message{Type: attach.TypeWelcome, Seq: seq, Welcome: &attach.Welcome{
		ABI: shm.ABIVersion, Node: c.node, Domain: w.domain.name, ID: w.id, Bytes: w.bytes,
		HoldMillis: c.holdMillis(),
	}}
	if w.role == attach.RoleTool {
		return w.conn.Send(welcome)
	}
	w.domain.seg.RestoreHeader(shm.KindDomain)
	fds := []int{w.domain.seg.FD(), w.seg.FD(), w.bell().FD()}
	if !w.adopted {
		fds = append(fds, w.pager.descriptors()...)
	}
	err := w.conn.Send(welcome, fds...)
	if !w.adopted {
		w.pager.sent()
	}
	if err != nil {
		return err
	}
	faultpoint.Here("welcome.sent")
	c.mu.Lock()
	defer c.mu.Unlock()
	w.welcomed = true
	w.keepWorkerChange()
	return nil
}

// abiText names a version of the layout of shared memory. Who is refused reads it in words of the other side, which must not say "this".
func abiText(version uint32) string {
	return fmt.Sprintf("ABI %d.%d", shm.MajorOf(version), shm.MinorOf(version))
}

func checkHello(node string, m *attach.Message) error {
	switch {
	case m.Type != attach.TypeHello || m.Hello == nil:
		return fmt.Errorf("%w: a %q message instead of hello", attach.ErrInvalid, printable.Text(string(m.Type)))
	case m.Hello.Protocol != attach.Protocol:
		return fmt.Errorf("%w: the program has protocol %d, the daemon of node %s has %d", attach.ErrVersion, m.Hello.Protocol, node, attach.Protocol)
	case m.Hello.Role != attach.RoleClient && m.Hello.Role != attach.RoleService && m.Hello.Role != attach.RoleTool:
		return fmt.Errorf("%w: role %q", attach.ErrInvalid, printable.Text(string(m.Hello.Role)))
	}
	if err := shm.CheckABI(m.Hello.ABI); err != nil {
		return fmt.Errorf("%w: the program has %s, the daemon of node %s has %s", attach.ErrVersion, abiText(m.Hello.ABI), node, abiText(shm.ABIVersion))
	}
	return nil
}

// maxTools is how many tools of a user may be attached. Each takes a descriptor and a goroutine, and
// domains have no part in that.
const maxTools = 64

// roomForTool returns the error that a tool gets whose user has too many of them attached. The caller holds mu.
func (c *conductor) roomForTool(w *worker) error {
	n := 0
	for other := range c.attached {
		if other.role == attach.RoleTool && other.uid == w.uid {
			n++
		}
	}
	if n >= maxTools {
		return fmt.Errorf("%w: user %d has %d tools attached to node %s already (rdmad top, rdmad trace and others: end some)", attach.ErrLimit, w.uid, n, c.node)
	}
	return nil
}

// enlist gives the worker its id, its segment and its place with the agent.
func (d *domain) enlist(w *worker) error {
	c := d.conductor
	if w.role == attach.RoleTool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.roomForTool(w); err != nil {
			return err
		}
		c.attached[w] = struct{}{}
		c.countWorkers()
		return nil
	}
	c.mu.Lock()
	err := c.isOutcast(w) // before anything is made for it
	c.mu.Unlock()
	if err != nil {
		return err
	}
	seg, err := shm.Create(shm.CreateOptions{Name: "rdmad-worker", Kind: shm.KindWorker, Size: slots.WorkerSegmentSize})
	if err != nil {
		return withoutMemory(err)
	}
	c.mu.Lock()
	w.id, err = d.freeID(w)
	if err == nil && d.retired {
		err = agent.ErrRetired
	}
	if err == nil {
		err = c.isOutcast(w)
	}
	if err == nil && c.draining {
		err = fmt.Errorf("%w: node %s is draining", attach.ErrClosed, c.node)
	}
	if err != nil {
		c.mu.Unlock()
		_ = seg.Close()
		return err
	}
	w.seg = seg
	w.bytes = c.live().Limits.WorkerBytes
	w.view = &agent.Worker{ID: w.id, PID: w.pid, Name: w.name, Told: true, MostBytes: w.bytes, Rings: slots.NewWorkerRings(seg.Bytes())}
	w.makePager()
	if w.role == attach.RoleClient {
		w.spiller = newSpiller(w)
		w.view.Spill = w.spiller.start
	}
	if w.role == attach.RoleService {
		w.view.Handlers = min(max(w.handlers, 0), slots.HintEntries)
		w.view.Ops = &agent.WorkerOps{Ring: slots.NewOpRing(seg.Bytes())}
	}
	d.workers[w.id] = w // from here on others may find it
	c.attached[w] = struct{}{}
	c.countWorkers()
	atomic.AddUint64(&c.counts().WorkersAttached, 1)
	d.keepCounts()
	d.keepWorker(w) // before it is told anything
	faultpoint.Here("enlist.kept")
	c.mu.Unlock()
	d.agent.Commands.Call(func() { d.view.AddWorker(w.view) })
	return nil
}

// freeID finds an attach id for w that no slot word carries any more. The limit of
// processes does not hold for services in the core, without which it would end. conductor.mu is
// held, and the agent never waits for that.
func (d *domain) freeID(w *worker) (int, error) {
	limit := d.conductor.live().Limits.Workers
	if len(d.workers) >= limit && !w.own() {
		return 0, fmt.Errorf("%w: %d workers are attached to domain %s (limits.workers)", attach.ErrLimit, limit, d.name)
	}
	id := 0
	d.agent.Commands.Call(func() {
		var unsettled agent.CallerSet
		d.view.UnsettledIDs(&unsettled)
		for range slots.MaxOwner {
			d.lastID = d.lastID%slots.MaxOwner + 1
			if d.workers[d.lastID] == nil && d.leaving[d.lastID] == 0 && d.view.Workers[d.lastID] == nil && !unsettled.Has(uint16(d.lastID)) {
				id = d.lastID
				return
			}
		}
	})
	if id == 0 {
		return 0, fmt.Errorf("%w: no free worker id in domain %s", attach.ErrLimit, d.name)
	}
	return id, nil
}

// give hands a lane over, unless the worker has it.
func (w *worker) give(l *laneInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.giveLocked(l)
}

func (w *worker) giveLocked(l *laneInfo) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.gone || w.given[l.ID] {
		return
	}
	w.given[l.ID] = true
	l.seg.RestoreHeader(shm.KindLane)
	if err := w.conn.Send(&attach.Message{Type: attach.TypeLane, Lane: &l.Lane}, l.seg.FD()); err != nil {
		w.untold(err)
	}
}

// untold ends the attachment of a worker that could not be told something: its serveWorker cleans
// up. One that takes no more, because it has closed its end, may have said goodbye before, which is
// still to be read: without it it would count as a worker for as long as its process lives. Nor does the daemon end what has ended.
func (w *worker) untold(err error) {
	select {
	case <-w.gone:
		return
	default:
	}
	if !errors.Is(err, unix.EPIPE) {
		w.hangUp()
	}
}

// withdraw tells the worker that a lane is gone, if it has it.
func (w *worker) withdraw(l *laneInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.given[l.ID] {
		return
	}
	delete(w.given, l.ID)
	w.tellClosed(l)
}

// tellClosed tells the worker that a lane is gone.
func (w *worker) tellClosed(l *laneInfo) {
	if err := w.conn.Send(&attach.Message{Type: attach.TypeClosed, Lane: &l.Lane}); err != nil {
		w.untold(err)
	}
}

// giveAll hands a new service worker every lane that requests come out of.
func (w *worker) giveAll() {
	c := w.domain.conductor
	c.mu.Lock()
	var serving []*laneInfo
	for _, l := range w.domain.lanes {
		if l.serves {
			serving = append(serving, l)
		}
	}
	c.mu.Unlock()
	for _, l := range serving {
		w.give(l)
	}
}
