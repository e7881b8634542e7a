package client_test

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// once is a handler that answers with its request and notes how often it has had it.
type once struct {
	mu   sync.Mutex
	runs map[uint64]int
}

func (o *once) handle(c *server.Call) error {
	id := binary.LittleEndian.Uint64(c.Request())
	o.mu.Lock()
	o.runs[id]++
	o.mu.Unlock()
	return c.Reply(c.Request())
}

// Requests that are everywhere on their way when the core of their node, of the node that
// answers, or both are killed are executed once and answered, and nobody sees an error.
func TestCallsOutliveCores(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	done := &once{runs: make(map[uint64]int)}
	serve(t, b, 2, handlers{"once": done.handle})
	serve(t, a, 2, handlers{"once": done.handle})
	c := attach(t, a)
	var methods []*client.Method
	for _, target := range []string{"a/t/once", "b/t/once"} {
		methods = append(methods, method(t, c, target))
	}
	var calls sync.WaitGroup
	stop := make(chan struct{})
	asked := make([]int, 4)
	for k := range asked {
		calls.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				asked[k]++
				id := binary.LittleEndian.AppendUint64(nil, uint64(k)<<32|uint64(n))
				if got, err := methods[k%2].Call(t.Context(), id); err != nil || string(got) != string(id) {
					t.Errorf("call %d of %d: %x, %v", n, k, got, err)
					return
				}
			}
		})
	}
	for range 4 {
		for _, victims := range [][]*daemontest.Node{{a}, {b}, {a, b}} {
			for _, v := range victims {
				if err := v.KillCore(); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range methods { // until both ways work again
				if _, err := m.Call(t.Context(), binary.LittleEndian.AppendUint64(nil, 1<<63)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	close(stop)
	calls.Wait()
	done.mu.Lock()
	defer done.mu.Unlock()
	total := 0
	for k, n := range asked {
		total += n
		for i := range n {
			if runs := done.runs[uint64(k)<<32|uint64(i)]; runs != 1 {
				t.Errorf("request %d of %d was executed %d times", i, k, runs)
			}
		}
	}
	t.Logf("%d calls", total)
}
