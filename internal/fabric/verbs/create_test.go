//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"runtime"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A queue that is closed while an endpoint is being made for it closes that, too, or has it not made.
func TestCreateBesideClose(t *testing.T) {
	needDevice(t)
	d := openDevice(t, Default())
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
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
	e := &Endpoint{dev: d, pd: pd.(*protectionDomain), cq: q.(*cq), room: 1, ended: make(chan struct{}), heard: make(chan struct{}), lost: make(chan struct{})}
	e.turned.L = &e.mu
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
}
