//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// An endpoint that its queue knows and that is not made yet when that is closed is not made any more.
func TestCreateBesideClose(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		d := opened(t, cfg)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		pd, err := d.AllocPD()
		must(err)
		q, err := d.CreateCQ(64, nil)
		must(err)
		// Known to the queue, and not made yet.
		e := &Endpoint{dev: d, pd: pd.(*protectionDomain), cq: q.(*cq), ended: make(chan struct{}), lost: make(chan struct{})}
		must(e.cq.admit(e))
		must(q.Close())
		if err := e.create(); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("create: %v", err)
		}
		must(pd.Close())
	})
}
