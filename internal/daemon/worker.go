package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
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
	pid    int
	uid    uint32
	pidfd  int // -1 if the kernel has none
	seg    *shm.Segment
	view   *agentWorker
	bye    bool // it has said that it touches its slots no more
	// regions is what it has of regions; guarded by conductor.mu.
	regions regionUse

	// mu orders what the worker is sent: a lane before the answer that names
	// it. given are the lanes it has.
	mu    sync.Mutex
	given map[uint16]bool
	// asks bounds the questions that wait for their answer.
	asks chan struct{}
}

const helloTimeout = 5 * time.Second

func (c *conductor) acceptWorkers(l *net.UnixListener) {
	for {
		sock, err := l.AcceptUnix()
		if err != nil {
			if c.acceptAgain("workers", err) {
				continue
			}
			return
		}
		if !c.spawn(func() { c.serveWorker(attach.NewConn(sock)) }) {
			_ = sock.Close()
		}
	}
}

// serveWorker is the life of an attachment.
func (c *conductor) serveWorker(conn *attach.Conn) {
	defer context.AfterFunc(c.ctx, func() {
		_ = conn.Send(&attach.Message{Type: attach.TypeGoodbye, Reason: "the daemon is stopping"})
		_ = conn.Close()
	})()
	w, err := c.attach(conn)
	if err != nil {
		c.refused.Add(1)
		c.log.Warn().Err(err).Msg("worker refused")
		_ = conn.Send(&attach.Message{Type: attach.TypeFail, Fail: attach.FailFor(err)})
		_ = conn.Close()
		return
	}
	log := c.log.With().Int("worker", w.id).Str("name", w.name).Int("pid", w.pid).Logger()
	log.Debug().Str("role", string(w.role)).Str("domain", w.domain.name).Msg("worker attached")
	for {
		m, fds, err := conn.Recv()
		shm.CloseFDs(fds) // workers have no descriptors to give
		if err == nil {
			err = c.handleWorker(w, m)
		}
		if err != nil {
			if !errors.Is(err, attach.ErrClosed) {
				c.refused.Add(1)
				log.Warn().Err(err).Msg("worker broke the protocol")
				_ = conn.Send(&attach.Message{Type: attach.TypeGoodbye, Reason: err.Error()})
			}
			break
		}
	}
	_ = conn.Close()
	c.detach(w)
	log.Debug().Msg("worker detached")
}

// attach does the handshake with a new process and makes it a worker.
func (c *conductor) attach(conn *attach.Conn) (_ *worker, err error) {
	w := &worker{conn: conn, pidfd: -1, given: make(map[uint16]bool), asks: make(chan struct{}, attach.MaxAsks)}
	defer func() {
		if err != nil {
			w.closePidfd()
		}
	}()
	var gid uint32
	if err := w.credentials(conn.Socket(), &gid); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	m, fds, err := conn.Recv()
	shm.CloseFDs(fds)
	if err != nil {
		return nil, fmt.Errorf("waiting for hello: %w", err)
	}
	if err := checkHello(m); err != nil {
		return nil, err
	}
	w.role, w.name = m.Hello.Role, printable(m.Hello.Name)
	if w.domain = c.admit(w.uid, gid); w.domain == nil {
		return nil, fmt.Errorf("%w: no domain of node %s admits user %d or group %d (see [[domain]] in its config)", attach.ErrPermission, c.node, w.uid, gid)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	// No lane before the welcome: whoever makes one finds w from now on.
	w.mu.Lock()
	if err := w.domain.enlist(w); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	welcome := &attach.Message{Type: attach.TypeWelcome, Seq: m.Seq, Welcome: &attach.Welcome{ABI: shm.ABIVersion, Node: c.node, Domain: w.domain.name, ID: w.id}}
	if w.role == attach.RoleTool {
		err = conn.Send(welcome)
	} else {
		err = conn.Send(welcome, w.domain.seg.FD(), w.seg.FD(), w.domain.bell.FD())
	}
	w.mu.Unlock()
	if err != nil {
		c.detach(w)
		return nil, err
	}
	if w.role == attach.RoleService {
		w.giveAll()
	}
	return w, nil
}

func checkHello(m *attach.Message) error {
	switch {
	case m.Type != attach.TypeHello || m.Hello == nil:
		return fmt.Errorf("%w: a %q message instead of hello", attach.ErrInvalid, printable(string(m.Type)))
	case m.Hello.Protocol != attach.Protocol:
		return fmt.Errorf("%w: protocol %d, this daemon speaks %d", attach.ErrVersion, m.Hello.Protocol, attach.Protocol)
	case m.Hello.Role != attach.RoleClient && m.Hello.Role != attach.RoleService && m.Hello.Role != attach.RoleTool:
		return fmt.Errorf("%w: role %q", attach.ErrInvalid, printable(string(m.Hello.Role)))
	}
	if err := shm.CheckABI(m.Hello.ABI); err != nil {
		return fmt.Errorf("%w: the worker has %w", attach.ErrVersion, err)
	}
	return nil
}

// printable makes a name from another process fit for logs and tables.
func printable(s string) string {
	b := []byte(s[:min(len(s), 64)])
	for i, ch := range b {
		if ch < ' ' || ch > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}

// credentials asks the kernel who is at the other end.
func (w *worker) credentials(sock *net.UnixConn, gid *uint32) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		if pidfd, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			unix.CloseOnExec(pidfd)
			w.pidfd = pidfd
		} else if pidfd, err := unix.PidfdOpen(int(cred.Pid), 0); err == nil {
			w.pidfd = pidfd
		}
	})
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("credentials of a worker: %w", err)
	}
	w.pid, w.uid = int(cred.Pid), cred.Uid
	*gid = cred.Gid
	return nil
}

// enlist gives the worker its id, its segment and its place with the agent.
func (d *domain) enlist(w *worker) error {
	c := d.conductor
	if w.role == attach.RoleTool {
		c.mu.Lock()
		c.attached[w] = struct{}{}
		c.mu.Unlock()
		return nil
	}
	seg, err := shm.Create(shm.CreateOptions{Name: "rdmad-worker", Kind: shm.KindWorker, Size: slots.WorkerSegmentSize})
	if err != nil {
		return fmt.Errorf("%w: %w", attach.ErrLimit, err)
	}
	c.mu.Lock()
	w.id, err = d.freeID()
	if err == nil && c.draining {
		err = fmt.Errorf("%w: node %s is draining", attach.ErrClosed, c.node)
	}
	if err != nil {
		c.mu.Unlock()
		_ = seg.Close()
		return err
	}
	d.workers[w.id] = w
	c.attached[w] = struct{}{}
	c.mu.Unlock()
	w.seg = seg
	w.view = &agentWorker{id: w.id, rings: slots.NewWorkerRings(seg.Bytes())}
	if w.role == attach.RoleService {
		w.view.ops = &workerOps{ring: slots.NewOpRing(seg.Bytes())}
	}
	d.agent.commands.call(func() { d.view.addWorker(w.view) })
	return nil
}

// freeID finds an attach id that no slot word carries any more. conductor.mu is
// held, and the agent never waits for that.
func (d *domain) freeID() (int, error) {
	limit := d.conductor.cfg.Limits.Workers
	if len(d.workers) >= limit {
		return 0, fmt.Errorf("%w: %d workers are attached to domain %s (limits.workers)", attach.ErrLimit, limit, d.name)
	}
	id := 0
	d.agent.commands.call(func() {
		for range slots.MaxOwner {
			d.lastID = d.lastID%slots.MaxOwner + 1
			if d.workers[d.lastID] == nil && d.view.workers[d.lastID] == nil && !d.view.unsettled(d.lastID) {
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

// detach ends an attachment. What the worker held is cleaned up at once if it
// has said goodbye, else when the kernel says that the process is dead.
func (c *conductor) detach(w *worker) {
	c.mu.Lock()
	delete(c.attached, w)
	served := false
	for _, m := range w.domain.methods {
		served = served || m.workers[w]
		delete(m.workers, w)
	}
	c.mu.Unlock()
	if served {
		c.directoryChanged()
	}
	defer w.closePidfd()
	if w.role == attach.RoleTool {
		return
	}
	d := w.domain
	d.agent.commands.call(func() { d.view.detach(w.view) })
	if !w.bye && !w.awaitDeath(c) {
		return // the core is stopping: nobody will use the slots again
	}
	d.agent.commands.call(func() { d.view.bury(w.view) })
	c.freeRegions(w)
	c.mu.Lock()
	delete(d.workers, w.id)
	c.mu.Unlock()
	_ = w.seg.Close()
}

// awaitDeath returns true when the process is dead. A process that has closed
// its socket but lives keeps its slots, because it may still write to them. The
// wait is the Go poller's: a thread for each such process would be too much.
func (w *worker) awaitDeath(c *conductor) bool {
	if w.pidfd < 0 {
		return true // a kernel without pidfds: the closed socket has to do
	}
	if err := unix.SetNonblock(w.pidfd, true); err != nil {
		c.log.Error().Err(err).Int("pid", w.pid).Msg("cannot wait for the end of a worker")
		return false
	}
	f := os.NewFile(uintptr(w.pidfd), "pidfd")
	w.pidfd = -1
	defer f.Close()
	defer context.AfterFunc(c.ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	raw, err := f.SyscallConn()
	dead := false
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			dead = n > 0 && err == nil
			return dead
		})
	}
	if err != nil && c.ctx.Err() == nil {
		c.log.Error().Err(err).Int("pid", w.pid).Msg("cannot wait for the end of a worker")
	}
	return dead
}

func (w *worker) closePidfd() {
	if w.pidfd >= 0 {
		_ = unix.Close(w.pidfd)
		w.pidfd = -1
	}
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
	if err := w.conn.Send(&attach.Message{Type: attach.TypeLane, Lane: &l.Lane}, l.seg.FD()); err != nil {
		_ = w.conn.Close() // it does not read: its serveWorker ends it
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
	if err := w.conn.Send(&attach.Message{Type: attach.TypeClosed, Lane: &l.Lane}); err != nil {
		_ = w.conn.Close()
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
