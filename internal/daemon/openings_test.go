package daemon

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// What a peer was told when it opened a lane is out of date once it has opened the lane again: an end of the first time that is late
// must not send the answers that the second one has asked for.
func TestLateOpeningIsOutdated(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	class := config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}
	first, second := agent.Opening{Session: r.s, Seq: 1}, agent.Opening{Session: r.s, Seq: 2}
	d.making.Lock()
	defer d.making.Unlock()
	a, err := d.findOrMakeMirror(first, class, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	outdated := func(o agent.Opening) (is bool) {
		d.agent.Commands.Call(func() { is = a.in.outdated(a.name, o) })
		return is
	}
	if outdated(first) {
		t.Error("at first")
	}
	again, err := d.findOrMakeMirror(second, class, 0, a.name, nil)
	if err != nil || again.in != a.in || again.name != a.name || again.verdicts == nil {
		t.Fatalf("the peer opens it again: %v, mirror %d, was %d, verdicts %v", err, again.name, a.name, again.verdicts)
	}
	if !outdated(first) || outdated(second) {
		t.Errorf("the first opening is outdated: %v, the second: %v", outdated(first), outdated(second))
	}
}

// Openings of a lane are dealt with beside each other. One that the peer has given up, and that is late, does not take the place of
// the one that it has asked for since.
func TestLateOpeningTakesNoPlace(t *testing.T) {
	r := newLinkRig(t)
	open, said := r.openings()
	second := make(chan error, 1)
	go func() { second <- open(2) }()
	<-r.dev.waiting
	if m := <-said; m.Type != peerproto.TypeAccept || m.Seq != 2 {
		t.Errorf("the peer is told %s %d", m.Type, m.Seq)
	}
	first := make(chan error, 1)
	go func() { first <- open(1) }()
	select {
	case err := <-first:
		if !errors.Is(err, errOutdated) {
			t.Error(err)
		}
	case <-r.dev.waiting:
		t.Error("the lane is connected anew for it")
	}
	select {
	case err := <-second:
		t.Errorf("the newer one has ended: %v", err)
	default:
	}
	r.stop()
	<-second
}

// Whoever opens a lane again has given up the connection before: this node waits no longer for that, whose memory may be registered.
func TestNewerOpeningEndsTheLast(t *testing.T) {
	r := newLinkRig(t)
	open, said := r.openings()
	over := make(chan error, 2)
	for seq := range uint64(2) {
		go func() { over <- open(seq + 1) }()
		<-r.dev.waiting
	}
	late := time.After(20 * time.Second) // less than a connection is waited for
	for told := false; !told; {
		select {
		case m := <-said:
			told = m.Type == peerproto.TypeBroken && m.Seq == 1 && m.Reason == errOutdated.Error()
		case <-late:
			t.Fatal("it waits for a connection that the peer has given up")
		}
	}
	if n := r.dev.domains.Load(); n != 1 {
		t.Errorf("%d protection domains", n)
	}
	r.stop()
	<-over
	<-over
}

// The memory of a lane stays as long as a connection is being made that may reach it.
func TestMemoryOfALaneThatIsBeingConnected(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	d.making.Lock()
	a, err := d.findOrMakeMirror(agent.Opening{Session: r.s, Seq: 1}, config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := a.in
	in.connecting.Add(1)
	d.making.Unlock()
	dropped := make(chan struct{})
	go func() {
		defer close(dropped)
		d.dropIncoming(in)
	}()
	for withheld := false; !withheld; {
		in.info.mu.RLock()
		withheld = in.info.gone
		in.info.mu.RUnlock()
	}
	for range 100 {
		r.eachDomain(func(*agent.Domain) {}) // what dropping a lane takes
	}
	select {
	case <-dropped:
		t.Error("it is unmapped")
	default:
	}
	in.connecting.Done()
	<-dropped
}

// A peer that accepts an opening when nobody waits for that any more is told at once: it would wait for the other end until its
// own time is over.
func TestAcceptedTooLate(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	_, said := r.openings()
	ctx, giveUp := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		m := &peerproto.Message{Type: peerproto.TypeOpen, Lane: &peerproto.Lane{Domain: "default", Class: "c", Number: 3, Address: []byte("x")}}
		r.s.number(m)
		_, err := r.s.askNumbered(ctx, m)
		over <- err
	}()
	open := <-said
	giveUp()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	accept := &peerproto.Message{Type: peerproto.TypeAccept, Seq: open.Seq, Lane: &peerproto.Lane{Address: []byte("y")}}
	for range 2 { // the second is of nobody's
		if err := r.s.handle(accept); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.s.handle(&peerproto.Message{Type: peerproto.TypePing, Seq: 9}); err != nil {
		t.Fatal(err)
	}
	want := peerproto.Lane{Domain: "default", Class: "c", Number: 3}
	if m := <-said; m.Type != peerproto.TypeBroken || m.Seq != open.Seq || m.Lane == nil || !reflect.DeepEqual(*m.Lane, want) {
		t.Errorf("the peer is told %+v", m)
	}
	if m := <-said; m.Type != peerproto.TypePong {
		t.Errorf("and then %+v", m)
	}
}

// What is remembered of a peer that never answers is bounded.
func TestForsakenOpenings(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	for seq := range uint64(3 * maxForsaken) {
		m := &peerproto.Message{Type: peerproto.TypeOpen, Seq: seq, Lane: &peerproto.Lane{Class: "c"}}
		r.s.pending[seq] = make(chan *peerproto.Message, 1)
		if !r.s.forsake(m) || r.s.forsake(m) {
			t.Fatal("an opening is given up once")
		}
	}
	if n := len(r.s.forsaken); n != maxForsaken || r.s.forsaken[3*maxForsaken-1] == nil || r.s.forsaken[0] != nil {
		t.Errorf("%d are remembered", n)
	}
}

// Connections for operations are opened as lanes are, so many at a time.
func TestOpsAskWithinTheBound(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	for range cap(r.s.asking) {
		r.s.asking <- struct{}{}
	}
	b := r.bulkWith(r.domainNamed("default"), "a")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, _, err := b.connect(ctx, func(error) {}, r.s)
		over <- err
	}()
	if err := r.peer.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.peer.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it asks beyond the bound: %d, %v", n, err)
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
