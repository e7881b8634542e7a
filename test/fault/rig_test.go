//go:build faultpoints

package fault

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/slots"
)

// rig is a pair of nodes that outlives many processes, with what watches them: a
// service, a survivor that calls it without a pause, and a view of all words.
type rig struct {
	a, b *daemontest.Node
	dir  string
	// raw is attached to a, known are the attach ids of this process there.
	raw   *raw
	known []int
	conn  *client.Conn
	files atomic.Int64
	runs  atomic.Uint64

	// working is held by the survivor during each call, and by who needs the rings
	// to himself.
	working sync.RWMutex
	calls   atomic.Int64
	slowest atomic.Int64 // call of the survivor, in nanoseconds

	// executed counts the executions of t/do by id.
	mu       sync.Mutex
	executed map[uint64]int
	// returned is how long slots took to become free, worst is the longest.
	returned []time.Duration
	// hit is where processes were killed or stopped.
	hit map[string]bool
}

// executions are the executions of t/do so far: there may still be some.
func (r *rig) executions() map[uint64]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.executed)
}

func newRig(t *testing.T) *rig {
	r := &rig{executed: map[uint64]int{}, hit: map[string]bool{}}
	r.a, r.b = daemontest.Pair(t, classes)
	r.dir = t.TempDir()
	r.serve(t)
	var err error
	if r.conn, err = client.Attach(t.Context(), r.a.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if r.raw, err = openRaw(t.Context(), r.a.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.raw.close(); err != nil {
			t.Error(err)
		}
	})
	daemontest.Eventually(t, "the service is known", func() error {
		_, err := r.raw.resolve(t.Context(), "t", "echo")
		return err
	})
	r.survive(t)
	s, err := r.a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Workers {
		if w.PID == os.Getpid() {
			r.known = append(r.known, w.ID)
		}
	}
	return r
}

// file returns a name for a new file.
func (r *rig) file(kind string) string {
	return filepath.Join(r.dir, fmt.Sprintf("%s.%d", kind, r.files.Add(1)))
}

// serve offers t/echo and t/do on b until the test ends.
func (r *rig) serve(t *testing.T) {
	s, err := server.Attach(t.Context(), r.b.Socket, server.Workers(4))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-over
	})
	do := func(c *server.Call) error {
		id := binary.LittleEndian.Uint64(c.Request())
		r.mu.Lock()
		r.executed[id]++
		r.mu.Unlock()
		return c.Reply(binary.LittleEndian.AppendUint64(nil, id))
	}
	echo := func(c *server.Call) error { return c.Reply(c.Request()) }
	if err := s.Handle("t", "echo", echo, server.AnswerLikeRequest()); err != nil {
		t.Fatal(err)
	}
	if err := s.Handle("t", "do", do, server.AnswerSize(8)); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(over)
		_ = s.Serve(context.Background())
	}()
}

// survive calls t/echo, one call after the other and of all sizes, until the test ends.
func (r *rig) survive(t *testing.T) {
	m, err := r.conn.Method(t.Context(), "b/t/echo")
	if err != nil {
		t.Fatal(err)
	}
	quit, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(quit)
		<-over
	})
	go func() {
		defer close(over)
		rnd := rand.New(rand.NewPCG(1, 2))
		buf := make([]byte, 8*slotSize)
		for n := uint64(0); ; n++ {
			select {
			case <-quit:
				return
			default:
			}
			msg := buf[:8+rnd.IntN(len(buf)-slots.HeaderSize-8)]
			binary.LittleEndian.PutUint64(msg, n)
			r.working.RLock()
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			start := time.Now()
			answer, err := m.Call(ctx, msg)
			r.slowest.Store(max(r.slowest.Load(), int64(time.Since(start))))
			cancel()
			r.working.RUnlock()
			if err != nil || !bytes.Equal(answer, msg) {
				t.Errorf("call %d of the survivor: %d bytes of %d, %v", n, len(answer), len(msg), err)
				return
			}
			r.calls.Add(1)
			time.Sleep(100 * time.Microsecond) // leaves processors to the processes under test
		}
	}()
}

// flows waits until the survivor has been answered n times more.
func (r *rig) flows(t *testing.T, n int64) {
	t.Helper()
	from := r.calls.Load()
	daemontest.Eventually(t, "calls of another process go on", func() error {
		if got := r.calls.Load() - from; got < n {
			return fmt.Errorf("%d answered of %d", got, n)
		}
		return nil
	})
}

// strays are the words in the rings that are neither free nor of this process.
func (r *rig) strays() (words []string) {
	for _, ring := range r.raw.rings() {
		for i := range ring.Geometry().Slots {
			if w := ring.Word(i); w.State() != slots.Free && !slices.Contains(r.known, w.Owner()) {
				words = append(words, fmt.Sprintf("%d: %v", i, w))
			}
		}
	}
	return words
}

// clean waits until the slots of all other processes are free.
func (r *rig) clean(t *testing.T) {
	t.Helper()
	start := time.Now()
	daemontest.Eventually(t, "the slots of the dead are free", func() error {
		if s := r.strays(); len(s) > 0 {
			return fmt.Errorf("words %v", s)
		}
		return nil
	})
	r.returned = append(r.returned, time.Since(start))
}

// quiet waits until nothing is under way but what the survivor does, which it keeps from
// doing anything meanwhile.
func (r *rig) quiet(t *testing.T) {
	t.Helper()
	r.working.Lock()
	defer r.working.Unlock()
	for _, n := range []*daemontest.Node{r.a, r.b} {
		if err := n.Quiet(); err != nil {
			t.Error(err)
		}
	}
	for _, ring := range r.raw.rings() {
		for i := range ring.Geometry().Slots {
			if w := ring.Word(i); w.State() != slots.Free {
				t.Errorf("slot %d is %v although nothing is under way", i, w)
			}
		}
	}
}

// figures says how long slots took to return, and the survivor's calls.
func (r *rig) figures(t *testing.T) {
	if len(r.returned) == 0 {
		return
	}
	slices.Sort(r.returned)
	at := func(q float64) time.Duration { return r.returned[int(q*float64(len(r.returned)-1))] }
	t.Logf("%d deaths; from the death to free slots: half within %v, 99 %% within %v, all within %v; calls of another process: %d, the slowest %v",
		len(r.returned), at(0.5), at(0.99), at(1), r.calls.Load(), time.Duration(r.slowest.Load()))
}
