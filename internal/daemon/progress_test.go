package daemon

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
)

// The supervisor is told that all is well while an agent takes commands and the conductor's
// lock can be had, not while either cannot, and again when both can.
func TestWatchdogStalls(t *testing.T) {
	store := depot.NewStore(depot.Limits{Items: 1, FDs: 1}, func(err error) { t.Error(err) })
	link, theirs, err := store.Pair()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { link.Serve(); close(served) }()
	core, _, err := depot.Open(theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	events := event.New(new(bytes.Buffer), event.Options{Process: "core"})
	c := &conductor{log: events.Logger(), depot: core, watchdog: 80 * time.Millisecond}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	a, err := newAgent("agent0", idleStrategy{}, 16, nil, c.log)
	if err != nil {
		t.Fatal(err)
	}
	c.agents = []*agent{a}
	c.agentsDone.Go(a.run)
	done := make(chan struct{})
	go func() { c.watchProgress(); close(done) }()
	alive := func() {
		t.Helper()
		select {
		case <-link.Alive():
		case <-time.After(2 * time.Minute):
			t.Fatal("not told that all is well")
		}
	}
	// said is how often it was said that something stalls: also of a part that was without a
	// processor for a moment.
	said := func() (n uint64) {
		for _, e := range events.Errors() {
			if e.Code != event.CoreStalled {
				t.Fatalf("%+v", e)
			}
			n += e.Count
		}
		return n
	}
	// stalls waits until it has been said more than before times that something stalls, and
	// that nobody says that all is well any more.
	stalls := func(part string, before uint64) {
		t.Helper()
		end := time.Now().Add(2 * time.Minute)
		for said() == before {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", part, events.Errors())
			}
			time.Sleep(time.Millisecond) // between two looks
		}
		for silence := false; !silence; {
			select {
			case <-link.Alive(): // was said before, unless it goes on
				if time.Now().After(end) {
					t.Fatalf("all is said to be well without the %s", part)
				}
			case <-time.After(2 * c.watchdog):
				silence = true
			}
		}
	}
	alive()
	release := make(chan struct{})
	before := said()
	a.commands.do(func() { <-release })
	stalls("agent", before)
	close(release)
	alive()
	before = said()
	c.mu.Lock()
	stalls("conductor", before)
	c.mu.Unlock()
	alive()
	c.cancel()
	<-done
	a.commands.do(func() { a.stop = true })
	c.agentsDone.Wait()
	if err := core.Close(); err != nil {
		t.Error(err)
	}
	<-served
	if !strings.Contains(events.Errors()[0].Text, "no progress") {
		t.Errorf("%+v", events.Errors())
	}
}
