//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"runtime"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A queue that is closed while an endpoint is being made for it closes that, too, or has it not made.
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
		for i := range 30 {
			q, err := d.CreateCQ(64, nil)
			must(err)
			made := make(chan error, 1)
			go func() {
				e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 16, RecvDepth: 16})
				if err == nil {
					err = e.Close()
				}
				made <- err
			}()
			for range i {
				runtime.Gosched()
			}
			must(q.Close())
			if err := <-made; err != nil && !errors.Is(err, fabric.ErrClosed) {
				t.Fatal(err)
			}
		}
		must(pd.Close())
	})
}
