//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// An endpoint that its queue knows and that is not made yet when that is closed is not made any more.
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
	must(pd.Close())
}
