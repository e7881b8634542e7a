package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// spillerRig is a spill rig whose slow worker has a spiller, and the worker's end of
// its socket.
type spillerRig struct {
	*spillRig
	s    *spiller
	peer *attach.Conn
}

func newSpillerRig(t *testing.T, limits config.Limits) *spillerRig {
	r := &spillerRig{spillRig: newSpillRig(t)}
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
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { r.s.end() })
	c := &conductor{cfg: &config.Config{Limits: limits}, log: zerolog.Nop(), ctx: ctx}
	t.Cleanup(func() {
		cancel()
		c.tasks.Wait()
	})
	w := &worker{domain: &domain{conductor: c, agent: r.a, view: r.d}, conn: conns[0], id: r.slow.id, view: r.slow.view}
	r.s, r.peer = newSpiller(w), conns[1]
	r.slow.view.spill = r.s.start
	return r
}

// await runs the agent until ok.
func (r *spillerRig) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: %+v", what, r.a.count)
		}
		if r.a.cycle() == 0 {
			time.Sleep(time.Millisecond) // between two looks
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
	spill, err := shm.ReadSealed(fds[0], slots.MaxSpill)
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

func (r *spillerRig) overdue(t *testing.T, n, size int) {
	t.Helper()
	r.answered(t, n, size)
	for range 3 {
		if !r.look() {
			t.Fatal("nobody looks")
		}
	}
}

// Without memory for a spill the answers stay where they are, and are sent when there is
// some.
func TestSpillWithoutMemory(t *testing.T) {
	r := newSpillerRig(t, config.Limits{SpillBytes: 1 << 20})
	store := r.s.store
	r.s.store = func([]byte) (int, error) { return -1, unix.ENOMEM }
	r.overdue(t, 5, 8)
	r.await(t, "a failure", func() bool { return r.a.count.SpillFailures == 1 && !r.slow.view.spilling })
	if n := r.out.ring.Held(r.slow.id); n != 5 {
		t.Errorf("%d answers are left of 5", n)
	}
	r.s.store = store
	r.look()
	r.await(t, "a spill", func() bool { return r.a.count.SpilledAnswers == 5 && !r.slow.view.spilling })
	if _, answers := r.receive(t); len(answers) != 5 {
		t.Errorf("%d answers", len(answers))
	}
	allFree(t, r.out.ring, 0)
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
	r.await(t, "a failure", func() bool { return r.a.count.SpillFailures == 1 && !r.slow.view.spilling })
	for range n + 1 {
		if m, _ := r.receive(t); m.Type != attach.TypeClosed {
			t.Fatalf("got %+v", m)
		}
	}
	r.look()
	r.await(t, "a spill", func() bool { return r.a.count.SpilledAnswers == 2 })
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
		r.await(t, "a spill", func() bool { return !r.slow.view.spilling })
		if r.s.held() == 0 {
			t.Error("nothing is unread")
		}
		if _, answers := r.receive(t); len(answers) != 1 || r.s.held() != 0 {
			t.Errorf("%d answers; %d bytes are unread", len(answers), r.s.held())
		}
	}
	for range 3 {
		r.overdue(t, 1, 400)
		r.await(t, "a spill", func() bool { return !r.slow.view.spilling })
	}
	if c := r.a.count; c.SlowWorkers != 1 || c.SpilledAnswers != 5 || c.SpillFailures != 1 {
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
	r.await(t, "another failure", func() bool { return r.a.count.SpillFailures == 2 && r.a.count.SlowWorkers == 1 })
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
	r.await(t, "a spill", func() bool { return r.a.count.SpilledAnswers == 1 })
	r.receive(t)
	r.await(t, "nobody watches", func() bool { return !watching() && !r.slow.view.spilling })
	if r.a.count.SlowWorkers != 0 {
		t.Error("it is disconnected")
	}
	r = newSpillerRig(t, config.Limits{SpillBytes: 1 << 20, SpillTimeout: 200 * time.Millisecond})
	r.overdue(t, 1, 8)
	r.await(t, "it is disconnected", func() bool { return r.a.count.SlowWorkers == 1 })
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
	r.s.end()
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
			return r.a.count.SpilledAnswers == 20 && r.s.held() == 0
		}
		_, answers := r.receive(t)
		got += len(answers)
		return false
	})
	if got != 20 || r.a.count.SlowWorkers != 0 || r.a.count.SpillFailures == 0 {
		t.Errorf("%d answers; %+v", got, r.a.count)
	}
}

func BenchmarkLook(b *testing.B) {
	s := newSide(b, nil)
	out, _ := s.localLane(b)
	for b.Loop() {
		out.age()
	}
}
