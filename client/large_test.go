package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// pattern returns n bytes that are others wherever a piece of a message could be misplaced.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, (n+7)/8*8)
	period := min(len(b), patternPeriod)
	for i := 0; i < period; i += 8 {
		seed += 0x9e3779b97f4a7c15
		binary.LittleEndian.PutUint64(b[i:], seed*seed>>7^seed)
	}
	for have := period; have < len(b); {
		have += copy(b[have:], b[:have])
	}
	return b[:n]
}

// patternPeriod is after how many bytes a pattern begins again: none by which pieces of a message could be misplaced.
const patternPeriod = 8 * 8191

// largeHandlers are t/sum, which answers with the hash of its request, and t/make, which
// answers with as many bytes of the pattern as its request says.
var largeHandlers = handlers{
	"sum": func(c *server.Call) error {
		h := sha256.Sum256(c.Request())
		return c.Reply(h[:])
	},
	"make": func(c *server.Call) error {
		return c.Reply(pattern(int(binary.LittleEndian.Uint64(c.Request())), 7))
	},
}

// largest is the most payload of a message in slots with the default classes.
const largest = 511*4160 - 64

// Sizes around every limit on the way, in both directions, by every way.
func TestLargeMessages(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 4, largeHandlers)
	serve(t, a, 4, largeHandlers)
	c := attach(t, a)
	sizes := []int{0, 1, 31, 32, 63, 64, 65, 960, 961, 1472, 1473, 4095, 4096, 4097, largest - 1, largest, largest + 1, 4<<20 - 1, 4 << 20, 4<<20 + 1, 9_999_999}
	for name, opts := range map[string][]client.CallOption{
		"automatic": nil,
		"parts":     {client.Rendezvous(1 << 30)},
		"regions":   {client.Rendezvous(0)},
		"split":     {client.Split()},
	} {
		for _, node := range []string{"a", "b"} {
			t.Run(name+" "+node, func(t *testing.T) {
				sum := method(t, c, node+"/t/sum").With(opts...)
				fetch := method(t, c, node+"/t/make").With(opts...)
				for _, n := range sizes {
					msg := pattern(n, uint64(n))
					want := sha256.Sum256(msg)
					if got, err := sum.Call(t.Context(), msg); err != nil || !bytes.Equal(got, want[:]) {
						t.Errorf("request of %d bytes: %x, %v", n, got, err)
					}
					got, err := fetch.Call(t.Context(), binary.LittleEndian.AppendUint64(nil, uint64(n)))
					if err != nil || !bytes.Equal(got, pattern(n, 7)) {
						t.Errorf("answer of %d bytes: %d bytes, %v", n, len(got), err)
					}
				}
			})
		}
	}
	quiet(t, a, b)
}

// Every style of call takes large messages.
func TestLargeMessagesInAllStyles(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	posted := make(chan int, 1)
	hs := handlers{"post": func(c *server.Call) error {
		posted <- len(c.Request())
		return nil
	}}
	serve(t, b, 4, hs)
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	msg := pattern(3<<20, 1)
	check := func(what string, got []byte, err error) {
		t.Helper()
		if err != nil || !bytes.Equal(got, msg) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
	}
	ctx := t.Context()
	got, err := m.Call(ctx, msg)
	check("Call", got, err)
	buf := append(make([]byte, 0, 4<<20), msg...)
	got, err = m.CallInto(ctx, buf, buf)
	check("CallInto", got, err)
	if &got[0] != &buf[0] {
		t.Error("CallInto made a new buffer")
	}
	err = m.CallFunc(ctx, msg, func(answer []byte) error {
		check("CallFunc", answer, nil)
		return errors.New("mine")
	})
	if err == nil || err.Error() != "mine" {
		t.Errorf("CallFunc: %v", err)
	}
	f, err := m.Go(ctx, msg)
	if err != nil {
		t.Fatal(err)
	}
	<-f.Done()
	got, err, _ = f.Result()
	check("Go", got, err)
	results, err := m.CallBatch(ctx, [][]byte{msg, msg[:10], msg})
	if err != nil {
		t.Fatal(err)
	}
	check("CallBatch", results[0].Answer, results[0].Err)
	check("CallBatch", results[2].Answer, results[2].Err)
	if !bytes.Equal(results[1].Answer, msg[:10]) {
		t.Error("CallBatch: a small one among large ones")
	}
	q := c.NewQueue()
	for tag := range uint64(3) {
		if err := m.GoTo(ctx, q, msg, tag); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, r := range q.All(ctx) {
		check("GoTo", r.Answer, r.Err)
		n++
	}
	if n != 3 {
		t.Errorf("%d results of 3", n)
	}
	if err := method(t, c, "b/t/post").Post(ctx, msg); err != nil || <-posted != len(msg) {
		t.Errorf("Post: %v", err)
	}
	quiet(t, a, b)
}

// With Direct nothing leaves the slots.
func TestDirect(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, largeHandlers)
	c := attach(t, a)
	m := method(t, c, "b/t/make").With(client.Direct())
	for n, ok := range map[uint64]bool{64: true, 65: false, 100_000: false} {
		var large *client.TooLargeError
		got, err := m.Call(t.Context(), binary.LittleEndian.AppendUint64(nil, n))
		if ok != (err == nil && len(got) == int(n)) || !ok && (!errors.As(err, &large) || large.What != "answer") {
			t.Errorf("answer of %d bytes: %d, %v", n, len(got), err)
		}
	}
	if _, err := m.Call(t.Context(), make([]byte, largest+1)); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("request: %v", err)
	}
	if got, err := m.With(client.AnswerSize(100_000)).Call(t.Context(), binary.LittleEndian.AppendUint64(nil, 100_000)); err != nil || len(got) != 100_000 {
		t.Errorf("%d, %v", len(got), err)
	}
}

// A call that is given up while its answer is fetched, or its request sent, ends at once.
func TestLargeMessageGivenUp(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 4, largeHandlers)
	c := attach(t, a)
	for n := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Millisecond)
		within(t, "answer", func() {
			_, err := method(t, c, "b/t/make").Call(ctx, binary.LittleEndian.AppendUint64(nil, 100<<20))
			if !errors.Is(err, client.ErrDeadline) && !errors.Is(err, client.ErrMaybeExecuted) {
				t.Errorf("answer: %v", err)
			}
		})
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), time.Duration(n)*time.Millisecond)
		within(t, "request", func() {
			_, err := method(t, c, "b/t/sum").Call(ctx, make([]byte, 100<<20))
			if !errors.Is(err, client.ErrDeadline) {
				t.Errorf("request: %v", err)
			}
		})
		cancel()
	}
	// And nothing is left behind but what the process forgets by itself.
	if _, err := method(t, c, "b/t/sum").Call(t.Context(), make([]byte, 10<<20)); err != nil {
		t.Error(err)
	}
	quiet(t, a, b)
}

// A process that has no room for large messages says so, and serves others.
func TestLargeMessagesWithoutRoom(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), b.Socket, server.LargeMessages(5<<20))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Handle("t", "sum", largeHandlers["sum"]), s.Handle("t", "make", largeHandlers["make"])); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(context.Background()) }()
	defer s.Close()
	c := attach(t, a)
	for range 3 {
		if _, err := method(t, c, "b/t/sum").Call(t.Context(), make([]byte, 6<<20)); !errors.Is(err, client.ErrNotExecuted) {
			t.Errorf("request: %v", err)
		}
		if _, err := method(t, c, "b/t/make").Call(t.Context(), binary.LittleEndian.AppendUint64(nil, 6<<20)); !errors.Is(err, client.ErrRemote) {
			t.Errorf("answer: %v", err)
		}
		if _, err := method(t, c, "b/t/sum").Call(t.Context(), make([]byte, 4<<20)); err != nil {
			t.Errorf("one that fits: %v", err)
		}
	}
	if _, err := method(t, c, "b/t/sum").Call(t.Context(), make([]byte, client.MaxMessage+1)); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("request: %v", err)
	}
	fmt.Fprintln(t.Output(), "done")
}

// When the process that has the rest of an answer is gone, the request has been executed
// and its answer is lost.
func TestLargeAnswerOfDeadProcess(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	p := daemontest.Spawn(t, "service", b.Socket, strings.Repeat("x", 100_000))
	f, err := method(t, attach(t, a), "b/t/who").Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answered(t, a, 1) // and nobody has looked
	p.Kill()
	if got, err := f.Wait(t.Context()); !errors.Is(err, client.ErrMaybeExecuted) || errors.Is(err, client.ErrNotExecuted) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	quiet(t, a, b)
}

// A process that may have no region sends and fetches large messages through slots.
func TestLargeMessagesWithoutRegions(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nregion_bytes=100000\n")
	serve(t, b, 1, nil)
	c := attach(t, a)
	if _, err := c.AllocRegion(t.Context(), 512<<10); !errors.Is(err, client.ErrLimit) {
		t.Errorf("a region for a transfer: %v", err)
	}
	msg := pattern(5<<20, 1)
	got, err := method(t, c, "b/t/echo").With(client.Rendezvous(0)).Call(t.Context(), msg)
	if err != nil || !bytes.Equal(got, msg) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	quiet(t, a, b)
}

// What lies in a region of the caller's, or is to go there, needs no other: there is no room
// for one, and it does not go by slots.
func TestLargeInOwnRegion(t *testing.T) {
	const size = 3 << 20
	a, b := daemontest.PairOfEach(t, "[limits]\nregion_bytes = 6291456\n", "")
	serve(t, b, 1, handlers{})
	c := attach(t, a)
	m := method(t, c, "b/t/echo")
	own, err := c.AllocRegion(t.Context(), 2*size)
	if err != nil {
		t.Fatal(err)
	}
	there, room := own.Bytes()[:size], own.Bytes()[size:]
	copy(there, pattern(size, 3))
	moved := func() uint64 {
		t.Helper()
		s, err := b.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Counters["region_bytes"]
	}
	for range 3 {
		clear(room)
		before := moved()
		got, err := m.CallInto(t.Context(), there, room[:0])
		if err != nil || &got[0] != &room[0] || !bytes.Equal(got, there) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if n := moved() - before; n < 2*size-8192 {
			t.Errorf("%d bytes went by regions, of %d", n, 2*size)
		}
	}
	// Elsewhere there is no room for a region: by slots.
	before := moved()
	got, err := m.Call(t.Context(), pattern(size, 4))
	if err != nil || !bytes.Equal(got, pattern(size, 4)) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if n := moved() - before; n != 0 {
		t.Errorf("%d bytes went by regions", n)
	}
	quiet(t, a, b)
}

// Many large messages at a time, in all directions: no two share a byte of memory.
func TestLargeMessagesAtOnce(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 4, handlers{})
	c := attach(t, a)
	m := method(t, c, "b/t/echo").With(client.Rendezvous(0))
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			for n := range 6 {
				msg := pattern(2_200_000+n*400_000+k, uint64(100*k+n))
				var err error
				var got []byte
				if n%2 == 0 {
					got, err = m.Call(t.Context(), msg)
				} else {
					err = m.CallFunc(t.Context(), msg, func(answer []byte) error {
						got = bytes.Clone(answer)
						return nil
					})
				}
				if err != nil || !bytes.Equal(got, msg) {
					t.Errorf("message %d of %d: %d bytes, %v", n, k, len(got), err)
				}
			}
		})
	}
	all.Wait()
	quiet(t, a, b)
}

// A message goes by slots although a process may not hold two parts of it at a time.
func TestLargeBelowALimit(t *testing.T) {
	const size = 100_000
	a, b := daemontest.PairOfEach(t, "[limits]\nregion_bytes = 0\nworker_slots = 1\n[[class]]\nname=\"small\"\nslot_size=4160\nslots=128\nmax_run=8\n", "[[class]]\nname=\"small\"\nslot_size=4160\nslots=128\nmax_run=8\n")
	serve(t, b, 1, handlers{})
	m := method(t, attach(t, a), "b/t/echo")
	daemontest.InTime(t, "a large message", func(ctx context.Context) bool {
		got, err := m.Call(ctx, pattern(size, 5))
		if err != nil {
			t.Log(err)
			return false
		}
		if !bytes.Equal(got, pattern(size, 5)) {
			t.Fatalf("%d bytes", len(got))
		}
		return true
	})
}

// An error about a size says what the size is, where the limit comes from, and what can be done.
func TestTooLargeSaysWhy(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, handlers{"sized": func(c *server.Call) error { return c.Reply(c.Request()) }, "huge": func(c *server.Call) error {
		c.Answer(client.MaxMessage + 1)
		return nil
	}})
	c := attach(t, a)
	m := method(t, c, "b/t/sized")
	for _, try := range []struct {
		m    *client.Method
		req  int
		want string
	}{
		{m.With(client.Within(100), client.AnswerSize(0)), 200, "request of 200 bytes, at most 100 (that is what client.Within says)"},
		{m.With(client.Within(50)), 10, "room for an answer of 64 bytes, at most 50 (that is what client.Within says; client.AnswerSize asks for less)"},
		{m.With(client.Direct()), largest + 1, fmt.Sprintf("request of %d bytes, at most %d (see [[class]] in the daemon's configuration)", largest+1, largest)},
		{m, client.MaxMessage + 1, "request of 1073741825 bytes, at most 1073741824 (no message is larger; send several, or a stream)"},
		{method(t, c, "b/t/huge"), 0, "answer larger than 1073741824 bytes (no message is larger; send several, or a stream)"},
		{m.With(client.Direct(), client.AnswerSize(10)), 100, "answer larger than 10 bytes (ask for more with client.AnswerSize, or declare it with server.AnswerSize)"},
	} {
		_, err := try.m.Call(t.Context(), make([]byte, try.req))
		if !errors.Is(err, client.ErrTooLarge) || !strings.HasSuffix(err.Error(), ": "+try.want) {
			t.Errorf("got  %v\nwant %s", err, try.want)
		}
	}
	quiet(t, a, b)
}
