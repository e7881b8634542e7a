package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// What the processes of a spillerRig are, their method, and the lane between them.
const (
	spillSlow, spillService = 11, 12
	spillMethod             = 5
	spillLane               = 3
)

var spillGeometry = slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4}

// spillerRig is an agent that looks for answers which are not taken when the test says so, with a lane, a service that
// answers when the test says so, and a slow worker that has a spiller.
type spillerRig struct {
	a       *agent.Agent
	view    *agent.Domain
	bells   *slots.Bells
	ring    *slots.Ring
	slow    *agent.Worker
	service *slots.WorkerRings
	asked   int // looks that the agent has asked for
	s       *spiller
	peer    *attach.Conn // the slow worker's end of its socket
}

func newSpillerRig(t *testing.T, limits config.Limits) *spillerRig {
	r := new(spillerRig)
	var err error
	if r.a, err = agent.New("test", agent.IdleStrategy{}, 16, nil, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	r.a.Start(&running)
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	r.view, r.bells = agent.NewDomain(r.a, slots.NewBells(mem)), slots.NewBells(mem)
	if r.ring, err = slots.NewRing(shm.AlignedBytes(spillGeometry.SegmentSize()), spillGeometry); err != nil {
		t.Fatal(err)
	}
	v, err := vault.New(shm.AlignedBytes(vault.Size(spillGeometry.Slots)), spillGeometry.Slots)
	if err != nil {
		t.Fatal(err)
	}
	out, in := agent.NewOutLane(r.view, spillLane, r.ring, v, 16), agent.NewInLane(r.view, spillLane, r.ring, v, 16)
	out.Local, in.Local = in, out
	process := func(id int) (*agent.Worker, *slots.WorkerRings) {
		mem := shm.AlignedBytes(slots.WorkerSegmentSize)
		return &agent.Worker{ID: id, Rings: slots.NewWorkerRings(mem)}, slots.NewWorkerRings(mem)
	}
	service, rings := process(spillService)
	service.Mapped[spillLane/64] |= 1 << (spillLane % 64)
	r.service = rings
	r.slow, _ = process(spillSlow)

	ours, theirs := socketPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	c := &conductor{cfg: &config.Config{Limits: limits}, log: zerolog.Nop(), ctx: ctx}
	w := &worker{domain: &domain{conductor: c, agent: r.a, view: r.view}, conn: ours, id: spillSlow, view: r.slow}
	r.s, r.peer = newSpiller(w), theirs
	r.slow.Spill = r.s.start
	r.a.Commands.Call(func() {
		r.view.MethodBits = 8
		r.view.Looks.After, r.view.Looks.Later = time.Second, func(time.Duration) { r.asked++ }
		r.a.Domains = append(r.a.Domains, r.view)
		r.view.AddOut(out)
		r.view.AddIn(in)
		r.view.AddWorker(service)
		r.view.AddWorker(r.slow)
		r.view.Register(spillMethod, service)
	})
	t.Cleanup(func() {
		r.s.end(false)
		cancel()
		c.tasks.Wait()
		r.a.Commands.Do(func() { r.a.Stop = true })
		running.Wait()
	})
	return r
}

// socketPair returns the two ends of a worker's connection.
func socketPair(t *testing.T) (ours, theirs *attach.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*attach.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		conns[i] = attach.NewConn(c.(*net.UnixConn))
		t.Cleanup(func() { _ = conns[i].Close() })
	}
	return conns[0], conns[1]
}

// answered makes n calls of the slow worker that are answered.
func (r *spillerRig) answered(t *testing.T, n, size int) {
	t.Helper()
	var calls []slots.Run
	for range n {
		u, err := r.ring.Claim(spillSlow, spillGeometry.RunFor(size))
		if err != nil {
			t.Fatal(err)
		}
		h := slots.Header{
			Ticket: u.Ticket, Run: uint16(u.Len), Length: uint32(size), Answer: uint32(size), Kind: slots.KindRequest, Method: spillMethod, From: spillSlow,
		}
		h.Encode(r.ring.Header(u))
		if !r.ring.Publish(u, spillSlow) {
			t.Fatal("not published")
		}
		r.bells.MarkLane(spillLane)
		calls = append(calls, u)
	}
	r.await(t, "all are answered", func() bool {
		for {
			h, ok := r.service.Down.Pop()
			if !ok {
				break
			}
			u, ok := r.ring.Pick(h.Index(), spillService)
			if !ok {
				continue
			}
			answer := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer, Length: uint32(size)}
			answer.Encode(r.ring.Header(u))
			if r.ring.Finish(u, spillService) {
				r.service.Up.Push(h)
				r.bells.MarkWorker(spillService)
			}
		}
		for _, u := range calls {
			if !r.ring.Answered(u, spillSlow) {
				return false
			}
		}
		return true
	})
}

// look lets the agent look, if it wants to, and reports whether it does.
func (r *spillerRig) look() (wants bool) {
	r.a.Commands.Call(func() {
		if wants = r.asked > 0; wants {
			r.asked--
			r.view.OnLook()
		}
	})
	return wants
}

// overdue is answered, and three looks at what is not taken.
func (r *spillerRig) overdue(t *testing.T, n, size int) {
	t.Helper()
	r.answered(t, n, size)
	for range 3 {
		r.await(t, "the agent looks", r.look)
	}
}

// counts returns what the agent has counted.
func (r *spillerRig) counts() (c counters.AgentCounts) {
	r.a.Commands.Call(func() { c = *r.a.Count })
	return c
}

// spilling reports whether a spill is on its way.
func (r *spillerRig) spilling() (yes bool) {
	r.a.Commands.Call(func() { yes = r.slow.Spilling })
	return yes
}

// await lets the agent go on until ok.
func (r *spillerRig) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); r.a.Commands.Call(func() {}) {
		if time.Now().After(end) {
			t.Fatalf("%s: %+v", what, r.counts())
		}
	}
}

// allFree fails the test unless nothing is in the ring.
func (r *spillerRig) allFree(t *testing.T) {
	t.Helper()
	for i := range spillGeometry.Slots {
		if w := r.ring.Word(i); w.State() != slots.Free {
			t.Errorf("slot %d: %v", i, w)
		}
	}
}

// receive returns what comes next over the worker's socket, and says that it was read.
func (r *spillerRig) receive(t *testing.T) (*attach.Message, []slots.Spilled) {
	t.Helper()
	m, fds, err := r.peer.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if m.Type != attach.TypeSpilled {
		return m, nil
	}
	spill, err := shm.CopySealed(fds[0], slots.MaxSpill)
	shm.CloseFDs(fds)
	if err != nil || len(fds) != 1 {
		t.Fatalf("%d descriptors, %v", len(fds), err)
	}
	if len(spill) == 0 {
		return m, nil // dropped
	}
	r.s.taken(m.Seq)
	answers, err := slots.ParseSpill(spill)
	if err != nil {
		t.Fatal(err)
	}
	return m, answers
}

// Without memory for a spill the answers stay where they are, and are sent when there is
// some.
func TestSpillWithoutMemory(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 1 << 20})
	store := r.s.store
	r.s.store = func([]byte) (int, error) { return -1, unix.ENOMEM }
	r.overdue(t, 5, 8)
	r.await(t, "a failure", func() bool { return r.counts().SpillFailures == 1 && !r.spilling() })
	if n := r.ring.Held(spillSlow); n != 5 {
		t.Errorf("%d answers are left of 5", n)
	}
	r.s.store = store
	r.look()
	r.await(t, "a spill", func() bool { return r.counts().SpilledAnswers == 5 && !r.spilling() })
	if _, answers := r.receive(t); len(answers) != 5 {
		t.Errorf("%d answers", len(answers))
	}
	r.allFree(t)
}

// A socket that is half full takes no spills, so that there is room for what cannot wait,
// and nobody waits for the worker.
func TestSpillToAFullSocket(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 1 << 30})
	filler := &attach.Message{Type: attach.TypeClosed, Reason: strings.Repeat("x", 4000)}
	n := 0
	for ; ; n++ {
		if err := r.s.w.conn.Offer(filler); errors.Is(err, attach.ErrBusy) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.s.w.conn.Send(filler); err != nil {
		t.Errorf("a message that cannot wait: %v", err)
	}
	r.overdue(t, 2, 8)
	r.await(t, "a failure", func() bool { return r.counts().SpillFailures == 1 && !r.spilling() })
	for range n + 1 {
		if m, _ := r.receive(t); m.Type != attach.TypeClosed {
			t.Fatalf("got %+v", m)
		}
	}
	r.look()
	r.await(t, "a spill", func() bool { return r.counts().SpilledAnswers == 2 })
	if _, answers := r.receive(t); len(answers) != 2 {
		t.Errorf("%d answers", len(answers))
	}
}

// A worker that leaves more unread than it may is told so and disconnected; one that
// reads may have any number, one after the other, and one spill of any size.
func TestSpillBytes(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 1000})
	for range 3 {
		r.overdue(t, 1, 400)
		r.await(t, "a spill", func() bool { return !r.spilling() })
		if r.s.held() == 0 {
			t.Error("nothing is unread")
		}
		if _, answers := r.receive(t); len(answers) != 1 || r.s.held() != 0 {
			t.Errorf("%d answers; %d bytes are unread", len(answers), r.s.held())
		}
	}
	for range 3 {
		r.overdue(t, 1, 400)
		r.await(t, "a spill", func() bool { return !r.spilling() })
	}
	if c := r.counts(); c.SlowWorkers != 1 || c.SpilledAnswers != 5 || c.SpillFailures != 1 {
		t.Errorf("%+v", c)
	}
	for range 2 {
		if m, answers := r.receive(t); m.Type != attach.TypeSpilled || len(answers) != 0 {
			t.Errorf("%d answers", len(answers)) // their memory is not the worker's any more
		}
	}
	if m, _ := r.receive(t); m.Type != attach.TypeGoodbye || !strings.Contains(m.Reason, "limits.spill_bytes") {
		t.Errorf("got %+v", m)
	}
	if _, _, err := r.peer.Recv(); !errors.Is(err, attach.ErrClosed) {
		t.Errorf("then %v", err)
	}
	// It is disconnected once.
	r.look()
	r.await(t, "another failure", func() bool { return r.counts().SpillFailures == 2 && r.counts().SlowWorkers == 1 })
}

// A worker that reads nothing for too long is disconnected although nothing more comes for
// it; one that reads in time is not, and nobody goes on watching it.
func TestSpillTimeout(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 1 << 20, SpillTimeout: 2 * time.Minute})
	watching := func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return r.s.watching
	}
	r.overdue(t, 1, 8)
	r.await(t, "a spill", func() bool { return r.counts().SpilledAnswers == 1 })
	r.receive(t)
	r.await(t, "nobody watches", func() bool { return !watching() && !r.spilling() })
	if r.counts().SlowWorkers != 0 {
		t.Error("it is disconnected")
	}
	r = newSpillerRig(t, config.Limits{SpillBytes: 1 << 20, SpillTimeout: 200 * time.Millisecond})
	r.overdue(t, 1, 8)
	r.await(t, "it is disconnected", func() bool { return r.counts().SlowWorkers == 1 })
	r.receive(t)
	if m, _ := r.receive(t); m.Type != attach.TypeGoodbye || !strings.Contains(m.Reason, "limits.spill_timeout") {
		t.Errorf("got %+v", m)
	}
	r.await(t, "nobody watches", func() bool { return !watching() })
}

// What a worker has not said to have read is bounded by number too; and when it is
// detached nothing is kept.
func TestSpillsAreFew(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 1 << 20})
	first := r.s.seq + 1
	for range mostSent {
		if err := r.s.send(slots.NewSpill(0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.s.send(slots.NewSpill(0)); !errors.Is(err, errMuch) {
		t.Errorf("one more: %v", err)
	}
	r.s.taken(first + 2)
	if n := len(r.s.sent); n != mostSent-3 {
		t.Errorf("%d are left of %d", n, mostSent)
	}
	r.s.taken(first + 1) // again
	if err := r.s.send(slots.NewSpill(0)); err != nil {
		t.Error(err)
	}
	r.s.taken(first + 1<<60) // of another core
	if n := len(r.s.sent); n != mostSent-2 {
		t.Errorf("%d are left of %d", n, mostSent)
	}
	r.s.taken(r.s.seq)
	if len(r.s.sent) != 0 || r.s.held() != 0 {
		t.Errorf("%d are left, %d bytes", len(r.s.sent), r.s.held())
	}
	if err := r.s.send(slots.NewSpill(0)); err != nil {
		t.Error(err)
	}
	r.s.end(false)
	if len(r.s.sent) != 0 {
		t.Error("one is kept")
	}
	if err := r.s.send(slots.NewSpill(0)); !errors.Is(err, errSlow) {
		t.Errorf("after the end: %v", err)
	}
}

// Many answers go in several messages, and a worker that had no time to read them is not
// taken for slow.
func TestSpillInParts(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 2000, SpillAfter: time.Hour})
	r.overdue(t, 20, 300)
	got := 0
	r.await(t, "all", func() bool {
		if r.s.held() == 0 {
			r.look()
			// The last part may have been sent meanwhile.
			return r.counts().SpilledAnswers == 20 && r.s.held() == 0
		}
		_, answers := r.receive(t)
		got += len(answers)
		return false
	})
	if got != 20 || r.counts().SlowWorkers != 0 || r.counts().SpillFailures == 0 {
		t.Errorf("%d answers; %+v", got, r.counts())
	}
}

// A status waits for nobody whose answers are just being moved: it is put together with conductor.mu held, for which all wait.
func TestStatusBesideASpill(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 1 << 20})
	store, begun, goOn := r.s.store, make(chan bool), make(chan bool)
	r.s.store = func(spill []byte) (int, error) {
		begun <- true
		<-goOn
		return store(spill)
	}
	sent, told := make(chan error, 1), make(chan int, 1)
	r.s.w.spiller = r.s
	go func() { sent <- r.s.send(slots.NewSpill(0)) }()
	<-begun
	go func() { told <- r.s.w.status(agent.Flight{}).SpillUnread }()
	select {
	case n := <-told:
		if n != 0 {
			t.Errorf("%d bytes are unread, and nothing was sent", n)
		}
	case <-time.After(time.Minute):
		t.Error("the status waits for the memory of a spill")
	}
	close(goOn)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if n := r.s.w.status(agent.Flight{}).SpillUnread; n != len(slots.NewSpill(0)) {
		t.Errorf("%d bytes are unread", n)
	}
}

// What a worker was sent that is detached without a goodbye stays to be read, and is cut if it says so later: its id is free then, and it
// may be sent as much again.
func TestSpillsOfOneThatLeavesLater(t *testing.T) {
	for _, left := range []bool{true, false} {
		r := newSpillerRig(t, config.Limits{SpillBytes: 1 << 20})
		if err := r.s.send(slots.NewSpill(0)); err != nil {
			t.Fatal(err)
		}
		kept, err := unix.FcntlInt(uintptr(r.s.sent[0].fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(kept)
		size := func() int64 {
			var st unix.Stat_t
			if err := unix.Fstat(kept, &st); err != nil {
				t.Fatal(err)
			}
			return st.Size
		}
		r.s.stop()
		if err := r.s.send(slots.NewSpill(0)); !errors.Is(err, errSlow) || size() == 0 {
			t.Errorf("detached: %v, %d bytes are left", err, size())
		}
		r.s.end(left)
		if cut := size() == 0; cut != left || len(r.s.sent) != 0 {
			t.Errorf("left: %v; cut: %v, and %d are kept", left, cut, len(r.s.sent))
		}
	}
}
