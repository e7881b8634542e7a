//go:build verbs && cgo && linux

package verbs

import (
	"testing"

	"github.com/rdmad/rdmad/internal/poller"
)

// Queues take the completion vectors in turn, and those that nobody sleeps on none of the turns. The device refuses a vector that it
// has not.
func TestQueuesTakeVectorsInTurn(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 64, true)
	d := r.dev[0]
	n := vectors(d.ctx)
	if n < 1 {
		t.Fatalf("%s has %d completion vectors", d.name, n)
	}
	take := func(p *poller.Poller) int {
		t.Helper()
		q, err := d.CreateCQ(16, p)
		r.must(err)
		t.Cleanup(func() { r.must(q.Close()) })
		return q.(*cq).lib.vector
	}
	if v := r.cq[0].lib.vector; v != 0 {
		t.Errorf("the first queue has vector %d", v)
	}
	for i := 1; i <= 2*n; i++ {
		take(nil)
		if v := take(r.poller); v != i%n {
			t.Errorf("queue %d has vector %d of %d", i, v, n)
		}
	}
	if q, err := createQueue(d.ctx, 16, false, n); err == nil {
		t.Errorf("a queue has vector %d of %d", n, n)
		r.must(q.destroy())
	}
}
