package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/slots"
)

// impatient makes daemons spill early.
const impatient = "[limits]\nspill_after=\"100ms\"\n"

// stop stops a process with SIGSTOP and returns when it has stopped. resume lets it go
// on.
func stop(t *testing.T, pid int) (resume func()) {
	t.Helper()
	if err := daemontest.StopProcess(pid); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
}

// workerOf returns the state of the worker that is a process.
func workerOf(t *testing.T, n *daemontest.Node, pid int) (status.Worker, *status.Node, error) {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range st.Workers {
		if w.PID == pid && w.Role == "client" {
			return w, st, nil
		}
	}
	return status.Worker{}, st, fmt.Errorf("process %d is no worker", pid)
}

// observer sees the words of all lanes to a service.
type observer struct{ rings []*slots.Ring }

func observe(t *testing.T, n *daemontest.Node, node, service, method string) *observer {
	t.Helper()
	v, o := newVandal(t, n, node, service, method), &observer{}
	for id, l := range v.lanes {
		r, err := slots.NewRing(v.segs[id].Bytes(), l.Geometry)
		if err != nil {
			t.Fatal(err)
		}
		o.rings = append(o.rings, r)
	}
	return o
}

// held is how many slots a worker holds; 0 for those of all.
func (o *observer) held(id int) (n int) {
	for _, r := range o.rings {
		if id > 0 {
			n += r.Held(id)
			continue
		}
		n += r.Holders(new([slots.MaxOwner + 1]uint32))
	}
	return n
}

// awaitHeld waits until a worker holds n slots.
func (o *observer) awaitHeld(t *testing.T, id, n int) {
	t.Helper()
	daemontest.Eventually(t, fmt.Sprintf("%d slots are held", n), func() error {
		if got := o.held(id); got != n {
			return fmt.Errorf("it is %d: %v", got, o.words(id))
		}
		return nil
	})
}

// words are the words that are not free of a worker, with the lane's place before each; of
// all for 0.
func (o *observer) words(id int) (words []string) {
	for lane, r := range o.rings {
		for i := range r.Geometry().Slots {
			if w := r.Word(i); w.State() != slots.Free && (id == 0 || w.Owner() == id) {
				words = append(words, fmt.Sprintf("%d.%d %v", lane, i, w))
			}
		}
	}
	return words
}

// stopBetween stops a worker at a moment at which it neither writes a request nor reads
// an answer: those slots would stay its own.
func (o *observer) stopBetween(t *testing.T, id, pid int) (resume func()) {
	t.Helper()
	daemontest.Eventually(t, "the process holds nothing in its hands", func() error {
		resume = stop(t, pid)
		for _, r := range o.rings {
			for i := range r.Geometry().Slots {
				if w := r.Word(i); w.Owner() == id && (w.State() == slots.Claim || w.State() == slots.Read) {
					resume()
					return fmt.Errorf("slot %d: %v", i, w)
				}
			}
		}
		return nil
	})
	return resume
}

// A process that is stopped while it waits for answers holds no slots for long,
// however it waits, and has all its answers when it goes on.
func TestStoppedWorkerGetsItsAnswers(t *testing.T) {
	for _, node := range []string{"b", "a"} {
		t.Run("from "+node, func(t *testing.T) {
			a, b := daemontest.Pair(t, impatient)
			at := map[string]*daemontest.Node{"a": a, "b": b}[node]
			g := newGate()
			defer g.Open()
			s, err := server.Attach(t.Context(), at.Socket, server.Workers(200))
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(s.Handle("t", "gate", g.gatedEcho), s.HandleStream("t", "stream", func(s *server.Stream) error {
				g.entered <- struct{}{}
				<-g.open
				for k := range 30 {
					if err := s.Send(pattern(1000*k, uint64(k))); err != nil {
						return err
					}
				}
				return nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- s.Serve(context.Background()) }()
			defer func() {
				g.Open()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				<-done
			}()
			method(t, attach(t, a), node+"/t/gate") // it is known
			p := daemontest.Spawn(t, "styles", a.Socket, node)
			want := 0
			for _, s := range styles {
				if s.name != "cancelled" && s.name != "given up" {
					want += s.n
				}
			}
			for range want {
				<-g.entered
			}
			o := observe(t, a, node, "t", "gate")
			w, _, err := workerOf(t, a, p.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			resume := o.stopBetween(t, w.ID, p.Process.Pid)
			g.Open()
			o.awaitHeld(t, w.ID, 0)
			w, st, err := workerOf(t, a, p.Process.Pid)
			if err != nil || w.SpilledAnswers < uint64(want)/2 || w.SpilledBytes == 0 || w.SpillUnread == 0 || w.SpilledAnswers != st.Counters["spilled_answers"] {
				t.Errorf("spilled: %+v, %v; %v", w, err, st.Counters)
			}
			resume()
			within(t, "the rest", func() {
				if got := p.Line(); got != "styles: <nil>" {
					t.Error(got)
				}
			})
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
			o.awaitHeld(t, 0, 0)
			_, st, _ = workerOf(t, a, p.Process.Pid)
			if c := st.Counters; c["protocol_errors"] != 0 || c["slow_workers"] != 0 || c["spill_failures"] != 0 {
				t.Errorf("counters: %v", c)
			}
			t.Logf("%d answers, %d bytes spilled", w.SpilledAnswers, w.SpilledBytes)
		})
	}
}

// Answers that nobody waits for do not stay in their slots, and go to their futures; what
// is read in place stays.
func TestSlowWorker(t *testing.T) {
	a, b := daemontest.Pair(t, impatient+tiny)
	serve(t, b, 4, nil)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	o := observe(t, a, "b", "t", "echo")
	place, err := m.CallInPlace(t.Context(), []byte("stays"))
	if err != nil {
		t.Fatal(err)
	}
	defer place.Release() // or the connection cannot be closed
	for round := range 5 {
		fs := outstanding(t, m, 40) // of 64 slots
		o.awaitHeld(t, 0, 1)
		for k, f := range fs {
			// The slots may be free a moment before the answer is here.
			daemontest.Eventually(t, "an outcome", func() error {
				if got, err, ok := f.Result(); !ok || err != nil || string(got) != "x" {
					return fmt.Errorf("round %d: future %d: %q, %v, %v", round, k, got, err, ok)
				}
				return nil
			})
		}
	}
	if got := string(place.Bytes()); got != "stays" {
		t.Errorf("in place: %q", got)
	}
	place.Release()
	o.awaitHeld(t, 0, 0)
}

// runClaimer claims slots and waits for an answer, and says so when it must have been
// stopped and have gone on: at the end of its standard input.
func runClaimer(args []string) error {
	c, err := client.Attach(context.Background(), args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := c.Method(ctx, "b/t/gate")
	if err != nil {
		return err
	}
	m = m.With(client.AnswerSize(8))
	f, err := m.Go(ctx, []byte("asked"))
	if err != nil {
		return err
	}
	short, err := m.Reserve(ctx, 5)
	if err != nil {
		return err
	}
	long, err := m.Reserve(ctx, 100)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	answer, err := f.Wait(ctx)
	err = same(answer, []byte("ok"), err)
	for _, r := range []*client.Request{short, long} {
		f, cerr := r.Commit()
		if cerr == nil {
			answer, cerr = f.Wait(ctx)
			cerr = same(answer, []byte("ok"), cerr)
		}
		err = errors.Join(err, cerr)
	}
	fmt.Println("claims:", err)
	return errors.Join(err, c.Close())
}

// Slots that a process has claimed when it is stopped stay its own, and the requests
// that it was writing go out when it goes on.
func TestStoppedInTheMiddleOfAClaim(t *testing.T) {
	a, b := daemontest.Pair(t, impatient+tiny)
	g := newGate()
	defer g.Open()
	serve(t, b, 4, handlers{"gate": g.handle})
	m := method(t, attach(t, a), "b/t/echo")
	o := observe(t, a, "b", "t", "gate")
	in, inEnd, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p := daemontest.SpawnWith(t, in, "claimer", a.Socket)
	<-g.entered
	resume := stop(t, p.Process.Pid)
	if err := inEnd.Close(); err != nil {
		t.Fatal(err)
	}
	o.awaitHeld(t, 0, 4)
	g.Open()
	o.awaitHeld(t, 0, 3)
	// Others go on, and the agent looks more often than an answer needs to be overdue.
	for range 3 {
		fs := outstanding(t, m, 20)
		o.awaitHeld(t, 0, 3)
		for _, f := range fs {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	w, _, err := workerOf(t, a, p.Process.Pid)
	if err != nil || w.SpilledAnswers != 1 || o.held(w.ID) != 3 {
		t.Errorf("it holds %d slots; %+v, %v", o.held(w.ID), w, err)
	}
	resume()
	within(t, "the rest", func() {
		if got := p.Line(); got != "claims: <nil>" {
			t.Error(got)
		}
	})
	o.awaitHeld(t, 0, 0)
}

// A process that has stopped and reads nothing is disconnected, after a time or when too
// much waits for it. Its answers then hold no slots; its claims do until it is dead. If it
// goes on, each of its calls has an outcome.
func TestSlowWorkerIsDisconnected(t *testing.T) {
	for name, limit := range map[string]string{
		"for its bytes": "spill_bytes=65536\n",
		"after a time":  "spill_timeout=\"300ms\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := daemontest.Pair(t, impatient+limit)
			g := newGate()
			defer g.Open()
			serve(t, b, 300, handlers{"gate": func(c *server.Call) error {
				g.entered <- struct{}{}
				<-g.open
				return c.Reply(c.Request())
			}})
			method(t, attach(t, a), "b/t/gate")
			o := observe(t, a, "b", "t", "gate")
			p := daemontest.Spawn(t, "bulky", a.Socket)
			for range bulkyCalls {
				<-g.entered
			}
			resume := stop(t, p.Process.Pid)
			g.Open()
			daemontest.Eventually(t, "it is disconnected", func() error {
				_, st, err := workerOf(t, a, p.Process.Pid)
				if n := st.Counters["slow_workers"]; n != 1 || err == nil {
					return fmt.Errorf("%d slow workers, %v", n, err)
				}
				return nil
			})
			o.awaitHeld(t, 0, 1) // what it has claimed
			resume()
			within(t, "the rest", func() {
				if got := p.Line(); !strings.HasPrefix(got, "all ended") {
					t.Error(got)
				} else {
					t.Log(got)
				}
			})
			o.awaitHeld(t, 0, 0)
		})
	}
}

// bulkyCalls is how many calls runBulky makes, of bulkySize bytes: more than
// spill_bytes in the test allows.
const (
	bulkyCalls = 200
	bulkySize  = 1000
)

// runBulky makes calls and claims a slot, and says how the calls ended.
func runBulky(args []string) error {
	c, err := client.Attach(context.Background(), args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := c.Method(ctx, "b/t/gate")
	if err != nil {
		return err
	}
	r, err := m.With(client.AnswerSize(8)).Reserve(ctx, 5)
	if err != nil {
		return err
	}
	m = m.With(client.AnswerSize(bulkySize))
	var fs []*client.Future
	for k := range bulkyCalls {
		f, err := m.Go(ctx, pattern(bulkySize, uint64(k)))
		if err != nil {
			return err
		}
		fs = append(fs, f)
	}
	fmt.Println("ready")
	answered, lost := 0, 0
	for k, f := range fs {
		switch got, err := f.Wait(ctx); {
		case err == nil && bytes.Equal(got, pattern(bulkySize, uint64(k))):
			answered++
		case errors.Is(err, client.ErrMaybeExecuted) && errors.Is(err, client.ErrClosed):
			lost++
		default:
			return fmt.Errorf("call %d: %d bytes, %w", k, len(got), err)
		}
	}
	<-c.Done()
	r.Abort()
	if err := c.Close(); err != nil {
		return err
	}
	fmt.Printf("all ended: %d answered, %d lost\n", answered, lost)
	return nil
}

// The daemon moves answers out of slots, and before this process has read them it makes
// other requests in the same slots: all are answered.
func TestNewRequestsInSlotsOfMovedAnswers(t *testing.T) {
	// One that takes its time has a quarter of the ring: with as much in use all of it is gone round in.
	const ring, long, batch = 64, 16, 8
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, b := daemontest.Pair(t, impatient+"[[class]]\nname=\"s\"\nslot_size=128\nslots=64\nmax_run=16\n")
	g := newGate()
	serve(t, b, 4, handlers{"gate": g.handle})
	defer g.Open()
	conn := attach(t, a)
	slow, err := method(t, conn, "b/t/gate").With(client.AnswerSize(long*128-64)).Go(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	m := method(t, conn, "b/t/echo").With(client.AnswerSize(8))
	send := func(from int) (futures []*client.Future) {
		for i := range batch {
			f, err := m.Go(ctx, []byte{byte(from + i)})
			if err != nil {
				t.Error(err)
				return futures
			}
			futures = append(futures, f)
		}
		return futures
	}
	read := client.HoldSpills(conn)
	var futures []*client.Future
	seen := observe(t, a, "b", "t", "echo")
	for len(futures) < ring-long && !t.Failed() {
		futures = append(futures, send(len(futures))...)
		seen.awaitHeld(t, 0, long)
	}
	more := make(chan []*client.Future)
	go func() { more <- send(len(futures)) }()
	daemontest.Eventually(t, "another request is made", func() error {
		if seen.held(0) == long {
			return errors.New("no other slot is held")
		}
		return nil
	})
	read()
	for i, f := range append(futures, <-more...) {
		if answer, err := f.Wait(ctx); err != nil || !bytes.Equal(answer, []byte{byte(i)}) {
			t.Errorf("request %d: %x, %v", i, answer, err)
		}
	}
	g.Open()
	if _, err := slow.Wait(ctx); err != nil {
		t.Error(err)
	}
}
