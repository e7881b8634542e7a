package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// witness is a handler that notes the numbers that requests begin with, in the order in
// which it is called, and that two calls with the same key do not overlap.
type witness struct {
	t    *testing.T
	mu   sync.Mutex
	seen map[byte][]uint32
	busy map[byte]bool
}

func newWitness(t *testing.T) *witness {
	return &witness{t: t, seen: map[byte][]uint32{}, busy: map[byte]bool{}}
}

func (w *witness) enter(key byte, number uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[key] {
		w.t.Errorf("key %d: number %d begins while another runs", key, number)
	}
	w.busy[key] = true
	w.seen[key] = append(w.seen[key], number)
}

func (w *witness) leave(key byte) {
	w.mu.Lock()
	w.busy[key] = false
	w.mu.Unlock()
}

func (w *witness) handle(c *server.Call) error {
	key, number := c.Request()[0], binary.LittleEndian.Uint32(c.Request()[1:])
	w.enter(key, number)
	defer w.leave(key)
	return c.Reply(nil)
}

// inOrder checks that the numbers of a key are 0 to n-1, in this order.
func (w *witness) inOrder(key byte, n int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, number := range w.seen[key] {
		if int(number) != i {
			w.t.Fatalf("key %d: number %d comes as %d", key, number, i)
		}
	}
	if len(w.seen[key]) != n {
		w.t.Fatalf("key %d: %d of %d", key, len(w.seen[key]), n)
	}
}

// numbered is a request of n bytes or more.
func numbered(key byte, number uint32, n int) []byte {
	p := make([]byte, max(n, 5))
	p[0] = key
	binary.LittleEndian.PutUint32(p[1:], number)
	return p
}

// Whatever way ordered requests are sent, and of whatever size, they are executed in
// order: on another node and on the own one, over one lane and over several, with rings
// that wrap many times.
func TestOrderedWhateverWay(t *testing.T) {
	const classes = "[[class]]\nname=\"small\"\nslot_size=128\nslots=64\nmax_run=16\n[[class]]\nname=\"large\"\nslot_size=512\nslots=64\nmax_run=16\n"
	for _, lanes := range []int{1, 3} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			a, b := daemontest.Pair(t, classes+fmt.Sprintf("[lanes]\nper_peer=%d\n", lanes))
			c := attach(t, a)
			for _, n := range []*daemontest.Node{b, a} {
				w := newWitness(t)
				for range 3 {
					serve(t, n, 4, handlers{"note": w.handle})
				}
				plain := method(t, c, n.Name+"/t/note")
				const keys, rounds = 8, 60
				var all sync.WaitGroup
				for key := range byte(keys) {
					all.Go(func() { sendEveryWay(t, c, plain.With(client.Ordered(uint64(key))), key, rounds) })
				}
				all.Wait()
				quiet(t, a, b)
				for key := range byte(keys) {
					w.inOrder(key, rounds*everyWay)
				}
			}
		})
	}
}

// everyWay is how many requests sendEveryWay sends in a round.
const everyWay = 12

// sendEveryWay sends numbered requests in all ways there are, and waits at the end.
func sendEveryWay(t *testing.T, c *client.Conn, m *client.Method, key byte, rounds int) {
	number := uint32(0)
	next := func() []byte {
		number++
		return numbered(key, number-1, int(number*97%6000))
	}
	var fs []*client.Future
	keep := func(f *client.Future, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		fs = append(fs, f)
	}
	q := c.NewQueue()
	for range rounds {
		keep(m.Go(t.Context(), next()))
		if err := m.Post(t.Context(), next()); err != nil {
			t.Error(err)
		}
		p := next()
		if r, err := m.Reserve(t.Context(), len(p)); err != nil {
			t.Error(err)
		} else {
			copy(r.Bytes(), p)
			keep(r.Commit())
		}
		if err := m.GoTo(t.Context(), q, next(), 0); err != nil {
			t.Error(err)
		}
		results, err := m.CallBatch(t.Context(), [][]byte{next(), next(), next(), next(), next()})
		if err != nil {
			t.Error(err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Error(r.Err)
			}
		}
		keep(m.GoInto(t.Context(), next(), nil))
		if err := m.CallFunc(t.Context(), next(), func([]byte) error { return nil }); err != nil {
			t.Error(err)
		}
		if _, err := m.Call(t.Context(), next()); err != nil {
			t.Error(err)
		}
		// Without the answers nobody would take out, the ring would be full.
		for _, f := range fs {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		fs = fs[:0]
	}
	for range q.All(t.Context()) {
	}
}

// A handler that takes long keeps those of its own order waiting and nobody else: not
// other keys, not requests without one, and no worker of its process.
func TestOrderedHoldUpOnlyTheirOwn(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	w := newWitness(t)
	serve(t, b, 2, handlers{"note": w.handle, "stay": func(c *server.Call) error {
		key := c.Request()[0]
		w.enter(key, binary.LittleEndian.Uint32(c.Request()[1:]))
		defer w.leave(key)
		return g.handle(c)
	}})
	c := attach(t, a)
	stay, note := method(t, c, "b/t/stay"), method(t, c, "b/t/note")
	const waiting = 200
	var fs []*client.Future
	for k := range uint32(waiting) {
		f, err := stay.With(client.Ordered(1)).Go(t.Context(), numbered(1, k, 5))
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	<-g.entered
	within(t, "other requests", func() {
		for k := range uint32(100) {
			for key := byte(2); key < 6; key++ {
				if _, err := note.With(client.Ordered(uint64(key))).Call(t.Context(), numbered(key, k, 5)); err != nil {
					t.Error(err)
				}
			}
			// The same key, but another method.
			if _, err := note.With(client.Ordered(1)).Call(t.Context(), numbered(7, k, 5)); err != nil {
				t.Error(err)
			}
			if _, err := note.Call(t.Context(), numbered(8, k, 5)); err != nil {
				t.Error(err)
			}
		}
	})
	if n := len(g.entered); n != 0 {
		t.Errorf("%d of the order have begun while the first one runs", n)
	}
	g.Open()
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	w.inOrder(1, waiting)
	for key := byte(2); key < 9; key++ {
		if key != 6 {
			w.inOrder(key, 100)
		}
	}
	quiet(t, a, b)
}

// endsWhenWatched is a context that ends when somebody wants to be told of its end,
// which a call does when its request has been sent.
type endsWhenWatched struct {
	context.Context
	end func()
}

func (c endsWhenWatched) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

// Ordered requests cannot be taken back, so that those behind them keep their place. One
// whose deadline passes is left out.
func TestOrderedAreNotTakenBack(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	w := newWitness(t)
	serve(t, b, 2, handlers{"note": w.handle})
	c := attach(t, a)
	m := method(t, c, "b/t/note").With(client.Ordered(3))
	resume, err := a.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resume() }()
	first, err := m.Go(t.Context(), numbered(3, 0, 5))
	if err != nil {
		t.Fatal(err)
	}
	if first.Cancel() {
		t.Error("an ordered request was taken back")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var late *client.DeadlineError
	if _, err := m.Call(endsWhenWatched{ctx, cancel}, numbered(3, 1, 5)); !errors.As(err, &late) || !late.Sent {
		t.Errorf("a call that is given up: %v", err)
	}
	var missed *client.Future
	daemontest.InTime(t, "a request before its deadline", func(soon context.Context) bool {
		f, err := m.Go(soon, numbered(3, 9, 5))
		if err != nil && (!errors.Is(err, client.ErrDeadline) || soon.Err() == nil) {
			t.Fatal(err)
		}
		<-soon.Done()
		missed = f
		return err == nil
	})
	last, err := m.Go(t.Context(), numbered(3, 2, 5))
	if err != nil {
		t.Fatal(err)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*client.Future{first, last} {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := missed.Wait(t.Context()); !errors.Is(err, client.ErrDeadline) || !errors.Is(err, client.ErrNotExecuted) {
		t.Errorf("a deadline that has passed: %v", err)
	}
	w.inOrder(3, 3)
	quiet(t, a, b)
}

// Ordered requests of any size use the class of the largest messages, and with Within
// the one for that size; what is larger is refused.
func TestWithin(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	w := newWitness(t)
	serve(t, b, 2, handlers{"note": w.handle}) // with room for answers of 64 bytes
	c := attach(t, a)
	m := method(t, c, "b/t/note")
	used := func() string {
		for _, class := range []string{"small", "large"} {
			if n := lanesOf(t, a, class, "out")[0].Requests; n > 0 {
				return class
			}
		}
		return "none"
	}
	sizes := []int{1, 64, 500, 900}
	send := func(m *client.Method, want ...error) {
		t.Helper()
		for i, n := range sizes {
			if _, err := m.Call(t.Context(), numbered(1, 0, n)); !errors.Is(err, want[min(i, len(want)-1)]) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
	send(m.With(client.Ordered(1), client.Within(500)), nil, nil, nil, client.ErrTooLarge)
	send(m.With(client.Within(63)), client.ErrTooLarge) // no room for the answer
	send(m.With(client.Ordered(1), client.Within(3<<20), client.AnswerSize(3<<20)), client.ErrTooLarge)
	if got := used(); got != "small" {
		t.Errorf("class %s", got)
	}
	before := lanesOf(t, a, "small", "out")[0].Requests
	send(m.With(client.Ordered(1)), nil)
	send(m.With(client.Within(100_000)), nil)
	if n := lanesOf(t, a, "small", "out")[0].Requests; n != before {
		t.Errorf("%d requests went by the smaller class", n-before)
	}
	if n := lanesOf(t, a, "large", "out")[0].Requests; n != uint64(2*len(sizes)) {
		t.Errorf("%d requests went by the larger class", n)
	}
	var e *client.TooLargeError
	if _, err := m.With(client.Within(100)).Call(t.Context(), make([]byte, 101)); !errors.As(err, &e) || e.Limit != 100 || e.What != "request" {
		t.Error(err)
	}
	quiet(t, a, b)
}

// A process that leaves in good order hands its orders on without a break.
func TestOrderedWhileProcessesLeave(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	w := newWitness(t)
	servers := make([]*server.Server, 3)
	for i := range servers {
		servers[i] = serve(t, b, 4, handlers{"note": w.handle})
	}
	c := attach(t, a)
	m := method(t, c, "b/t/note")
	const keys, each, depth = 8, 2000, 32
	var all sync.WaitGroup
	half := make(chan struct{}, keys)
	for key := range byte(keys) {
		all.Go(func() {
			ordered := m.With(client.Ordered(uint64(key)), client.Within(64))
			var fs []*client.Future
			for k := range uint32(each) {
				if k == each/2 {
					half <- struct{}{}
				}
				f, err := ordered.Go(t.Context(), numbered(key, k, 5))
				if err != nil {
					t.Error(err)
					return
				}
				if fs = append(fs, f); len(fs) < depth {
					continue
				}
				if _, err := fs[0].Wait(t.Context()); err != nil {
					t.Errorf("key %d: %v", key, err)
				}
				fs = slices.Delete(fs, 0, 1)
			}
			for _, f := range fs {
				if _, err := f.Wait(t.Context()); err != nil {
					t.Errorf("key %d: %v", key, err)
				}
			}
		})
	}
	for _, s := range servers[:2] {
		<-half
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	for key := range byte(keys) {
		w.inOrder(key, each)
	}
	quiet(t, a, b)
}

// Ordered requests do not go in parts: one that fits no run of slots is refused, and
// keeps nobody waiting. Their answers may be of any size.
func TestOrderedTooLarge(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	w := newWitness(t)
	serve(t, b, 2, handlers{"note": w.handle, "make": largeHandlers["make"]})
	c := attach(t, a)
	m := method(t, c, "b/t/note").With(client.Ordered(1))
	for k := range uint32(3) {
		if _, err := m.Call(t.Context(), numbered(1, k, largest)); err != nil {
			t.Error(err)
		}
		var e *client.TooLargeError
		if _, err := m.Call(t.Context(), numbered(1, 9, largest+1)); !errors.As(err, &e) || e.What != "request" || e.Limit != largest {
			t.Error(err)
		}
	}
	w.inOrder(1, 3)
	got, err := method(t, c, "b/t/make").With(client.Ordered(1)).Call(t.Context(), binary.LittleEndian.AppendUint64(nil, 3<<20))
	if err != nil || len(got) != 3<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	quiet(t, a, b)
}
