package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// Ten thousand goroutines of one process call at once, on a target that nobody
// has looked up, and wait on no more threads than a few.
func TestManyCallers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 4, nil)
	c := attach(t, a)
	method(t, attach(t, a), "b/t/echo") // by another connection: it is known now
	before := daemontest.Threads(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range 10_000 {
		wg.Go(func() {
			msg := binary.LittleEndian.AppendUint64(nil, uint64(i))
			got, err := c.Call(ctx, "b/t/echo", msg)
			if (err != nil || !bytes.Equal(got, msg)) && failed.Add(1) < 5 {
				t.Errorf("call %d: %x, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if n := daemontest.Threads(t); n > before+24 {
		t.Errorf("%d threads, %d before", n, before)
	}
	quiet(t, a, b)
}

// Leaders hand over to followers while calls are cancelled, time out and finish
// in any order: no answer is lost, nobody sleeps for ever.
func TestHandOver(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 4, handlers{"nap": func(c *server.Call) error {
		if n := c.Request()[0]; n > 200 {
			time.Sleep(time.Duration(n) * time.Microsecond) // a handler that takes time
		}
		return c.Reply(c.Request())
	}})
	c := attach(t, a)
	m := method(t, c, "b/t/nap")
	stop := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	var ok, late, cancelled atomic.Int64
	for g := range 48 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			buf := make([]byte, 0, 64)
			for n := uint64(0); time.Now().Before(stop); n++ {
				msg := binary.LittleEndian.AppendUint64([]byte{byte(r.Uint32())}, uint64(g)<<32|n)
				var got []byte
				var err error
				switch r.IntN(5) {
				case 0: // a deadline that may pass
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(2000))*time.Microsecond)
					got, err = m.CallInto(ctx, msg, buf)
					cancel()
				case 1: // a cancellation
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Duration(r.IntN(1000))*time.Microsecond, cancel)
					got, err = m.CallInto(ctx, msg, buf)
					cancel()
				case 2: // a future that may be taken back
					var f *client.Future
					if f, err = m.Go(t.Context(), msg); err == nil {
						if r.IntN(2) == 0 {
							f.Cancel()
						}
						got, err = f.Wait(t.Context())
						f.Release()
					}
				case 3: // a future by its channel
					var f *client.Future
					if f, err = m.Go(t.Context(), msg); err == nil {
						<-f.Done()
						got, err, _ = f.Result()
					}
				default:
					got, err = m.CallInto(t.Context(), msg, buf)
				}
				switch {
				case err == nil && bytes.Equal(got, msg):
					ok.Add(1)
				case errors.Is(err, client.ErrDeadline):
					late.Add(1)
				case errors.Is(err, client.ErrNotExecuted):
					cancelled.Add(1)
				default:
					t.Errorf("goroutine %d call %d: %x, want %x, %v", g, n, got, msg, err)
					return
				}
				// What a call that was given up left behind must not write here.
				buf = append(buf[:0], make([]byte, 64)...)[:0]
			}
		})
	}
	within(t, "hand-over", wg.Wait)
	t.Logf("%d answered, %d late, %d cancelled", ok.Load(), late.Load(), cancelled.Load())
	if _, err := m.Call(t.Context(), []byte("\x00last")); err != nil {
		t.Error(err)
	}
	quiet(t, a, b)
}

// A call that was given up must not write to the caller's buffer afterwards.
func TestGivenUpBuffer(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	buf := make([]byte, 8)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-g.entered
		cancel()
	}()
	if _, err := m.CallInto(ctx, nil, buf); !errors.Is(err, client.ErrMaybeExecuted) {
		t.Fatal(err)
	}
	g.Open()
	if _, err := m.Call(t.Context(), nil); err != nil { // after the first one's answer
		t.Fatal(err)
	}
	if !bytes.Equal(buf, make([]byte, 8)) {
		t.Errorf("the buffer has become %q", buf)
	}
	quiet(t, a, b)
}

// More answers at once than the ring of hints can hold.
func TestHintOverflow(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"wide\"\nslot_size=128\nslots=16384\nmax_run=64\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/gate")
	futures := make([]*client.Future, 12_000)
	for i := range futures {
		f, err := m.Go(t.Context(), nil)
		if err != nil {
			t.Fatal(i, err)
		}
		futures[i] = f
	}
	g.Open()
	answered(t, a, uint64(len(futures))) // and nobody has looked
	within(t, "wait", func() {
		for i, f := range futures {
			if got, err := f.Wait(t.Context()); err != nil || string(got) != "ok" {
				t.Errorf("future %d: %q, %v", i, got, err)
			}
			f.Release()
		}
	})
}

// A hundred thousand futures are outstanding at once, in rings of two classes, and each
// gets its own answer, in whatever order they are waited for.
func TestHundredThousandFutures(t *testing.T) {
	const each = 50_000
	a, b := daemontest.Pair(t, "[[class]]\nname=\"s\"\nslot_size=128\nslots=65536\nmax_run=4\n[[class]]\nname=\"l\"\nslot_size=1024\nslots=65536\nmax_run=4\n")
	// All that is not in the handler waits in its slots, or in the process's ring.
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": func(c *server.Call) error {
		<-g.open
		return c.Reply(c.Request()[:8])
	}})
	m := method(t, attach(t, a), "b/t/gate")
	futures := make([]*client.Future, 2*each)
	msg := make([]byte, 600)
	for i := range futures {
		binary.LittleEndian.PutUint64(msg, uint64(i))
		size := 8
		if i%2 == 1 { // takes a slot of the other class
			size = len(msg)
		}
		f, err := m.Go(t.Context(), msg[:size])
		if err != nil {
			t.Fatal(i, err)
		}
		futures[i] = f
	}
	for i, f := range futures {
		if _, _, ok := f.Result(); ok {
			t.Fatalf("future %d has an outcome", i)
		}
	}
	g.Open()
	within(t, "wait", func() {
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(futures)) {
			got, err := futures[i].Wait(t.Context())
			if err != nil || len(got) != 8 || binary.LittleEndian.Uint64(got) != uint64(i) {
				t.Errorf("future %d: %x, %v", i, got, err)
				return
			}
			futures[i].Release()
		}
	})
	quiet(t, a, b)
}

// A call with room for the answer allocates nothing.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: go test without -race counts allocations")
	}
	a, b := daemontest.Pair(t, "")
	// In a process of its own: AllocsPerRun leaves this one a single processor.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	c := attach(t, a)
	m := method(t, c, "b/t/who")
	msg, buf := []byte("hello"), make([]byte, 64)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, ctx := range []context.Context{context.Background(), ctx} {
		// The average over many: the runtime itself allocates now and then.
		if n := testing.AllocsPerRun(2000, func() {
			if _, err := m.CallInto(ctx, msg, buf); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations per call with %v", n, ctx)
		}
	}
}

// A request that is written in place costs no allocation but that of its answer.
func TestReserveAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: go test without -race counts allocations")
	}
	a, b := daemontest.Pair(t, "")
	// In a process of its own: AllocsPerRun leaves this one a single processor.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	m := method(t, attach(t, a), "b/t/who")
	ctx := context.Background()
	if n := testing.AllocsPerRun(2000, func() {
		r, err := m.Reserve(ctx, 5)
		if err != nil {
			t.Fatal(err)
		}
		copy(r.Bytes(), "hello")
		f, err := r.Commit()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		f.Release()
	}); n > 1 {
		t.Errorf("%v allocations per call", n)
	}
	if n := testing.AllocsPerRun(2000, func() {
		r, err := m.Reserve(ctx, 5)
		if err != nil {
			t.Fatal(err)
		}
		r.Abort()
	}); n != 0 {
		t.Errorf("%v allocations per reservation", n)
	}
}

// Messages of all sizes around the borders of slots and classes.
func TestSizes(t *testing.T) {
	a, b := daemontest.Pair(t, "[[class]]\nname=\"s\"\nslot_size=128\nslots=256\nmax_run=16\n[[class]]\nname=\"l\"\nslot_size=1024\nslots=256\nmax_run=64\n")
	var posted atomic.Int64
	serve(t, b, 2, handlers{"note": func(c *server.Call) error {
		posted.Add(int64(len(c.Request())))
		return nil
	}})
	c := attach(t, a)
	echo, note := method(t, c, "b/t/echo"), method(t, c, "b/t/note")
	const largest = 64*1024 - 64
	sizes := []int{largest - 1, largest}
	for _, border := range []int{0, 64, 128 - 64, 2*128 - 64, 8*128 - 64, 16*128 - 64, 1024 - 64, 2*1024 - 64} {
		for _, n := range []int{border - 1, border, border + 1} {
			if n >= 0 {
				sizes = append(sizes, n)
			}
		}
	}
	total := int64(0)
	for _, n := range sizes {
		msg := bytes.Repeat([]byte{byte(n), byte(n >> 8), 7}, n/3+1)[:n]
		if got, err := echo.Call(t.Context(), msg); err != nil || !bytes.Equal(got, msg) {
			t.Errorf("echo of %d bytes: %d bytes, %v", n, len(got), err)
		}
		r, err := echo.Reserve(t.Context(), n)
		if err != nil {
			t.Errorf("reserve %d: %v", n, err)
			continue
		}
		copy(r.Bytes(), msg)
		f, err := r.Commit()
		if err != nil {
			t.Errorf("commit %d: %v", n, err)
			continue
		}
		if got, err := f.Wait(t.Context()); err != nil || !bytes.Equal(got, msg) {
			t.Errorf("reserved echo of %d bytes: %d bytes, %v", n, len(got), err)
		}
		if err := note.Post(t.Context(), msg); err != nil {
			t.Errorf("post of %d bytes: %v", n, err)
		}
		total += int64(n)
	}
	daemontest.Eventually(t, "posted", func() error {
		if got := posted.Load(); got != total {
			return fmt.Errorf("%d bytes arrived of %d", got, total)
		}
		return nil
	})
	echo, note = echo.With(client.Direct()), note.With(client.Direct())
	for what, err := range map[string]error{
		"call": second(echo.Call(t.Context(), make([]byte, largest+1))),
		"post": note.Post(t.Context(), make([]byte, largest+1)),
		"room": second(note.With(client.AnswerSize(largest+1)).Call(t.Context(), nil)),
	} {
		var e *client.TooLargeError
		if !errors.Is(err, client.ErrTooLarge) || !errors.As(err, &e) || e.Limit != largest || e.Size != largest+1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := echo.Reserve(t.Context(), -1); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("reserve -1: %v", err)
	}
	quiet(t, a, b)
}

func second[T any](_ T, err error) error { return err }
