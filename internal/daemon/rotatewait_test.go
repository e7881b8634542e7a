package daemon

import (
	"io"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// A domain that gets new memory does not wait for a peer that has asked for a lane and does not connect: all others
// that are to get some would wait, too.
func TestNewMemoryWaitsForNoPeer(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	go func() { _, _ = io.Copy(io.Discard, r.peer) }()
	class := config.Class{Name: "small", SlotSize: 128, Slots: 64, MaxRun: 8}
	r.cfg.Classes = []config.Class{class}
	refused := make(chan error, 1)
	go func() {
		refused <- r.openIncoming(r.s, &peerproto.Message{Type: peerproto.TypeOpen, Seq: 1, Lane: &peerproto.Lane{
			Domain: "default", Class: "small", Geometry: geometryOf(class), Address: []byte("x"),
			Key: fabric.RemoteKey{Len: 1 << 20},
		}})
	}()
	select {
	case <-r.dev.waiting:
	case err := <-refused:
		t.Fatal(err)
	}
	d := r.domainNamed("default")
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.rotate(d, 1)
	}()
	select {
	case <-done:
	case <-time.After(openTimeout - 10*time.Second):
		t.Fatal("the new memory waits for the peer")
	}
	<-refused
	if now := r.domainNamed("default"); now == d {
		t.Error("the domain has no new memory")
	}
}
