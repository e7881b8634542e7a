package daemon

import (
	"bufio"
	"io"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
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

// Nor does it wait for peers to read that their connections to the old memory have ended: each is told when it reads.
func TestEndingsOfADeafPeer(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	lanes := map[uint16]*laneInfo{3: {Lane: attach.Lane{ID: 3, Class: "small", Number: 1}}}
	ends := []agent.Ending{{Conn: agent.Opening{Session: r.s, Seq: 7}, Lane: 3, Incoming: true}, {Conn: agent.Opening{Session: r.s, Seq: 8}, Lane: 4}}
	d.tellEndings(ends, lanes, "damaged")
	m, err := peerproto.Read(bufio.NewReader(r.peer), peerproto.MaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	if m.Type != peerproto.TypeBroken || m.Seq != 7 || m.Reason != "damaged" || m.Lane == nil || m.Lane.Class != "small" || m.Lane.Number != 1 || !m.Lane.Incoming {
		t.Errorf("the peer is told %+v", m)
	}
}
