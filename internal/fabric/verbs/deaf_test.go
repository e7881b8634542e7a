//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A device that cannot take control messages any more says why nothing can be connected, at once.
func TestConnectOfTheDeaf(t *testing.T) {
	inLab(t)
	r := newRig(t, Default(), 64, false)
	a, b := r.newEnd(0, 4, 4), r.newEnd(1, 4, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	restore := r.cutOff(r.cq[0])
	calling := make(chan error, 1)
	go func() { calling <- b.ep.Connect(ctx, a.ep.Address(), fabric.Active) }()
	select {
	case <-r.dev[0].ctl.deaf:
	case <-time.After(patience):
		t.Error("the device receives without the kernel")
	}
	restore()
	err := a.ep.Connect(ctx, b.ep.Address(), fabric.Passive)
	var ce *CallError
	if !errors.As(err, &ce) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connect: %v", err)
	}
	// The other one has heard that this one is ready, or may wait for it.
	cancel()
	<-calling
}
