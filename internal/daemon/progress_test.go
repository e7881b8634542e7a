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
		case <-time.After(10 * time.Second):
			t.Fatal("not told that all is well")
		}
	}
	// stalls waits until it is said that a part stalls, and checks that nothing else is said
	// meanwhile.
	stalls := func(part string, times uint64) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			list := events.Errors()
			if len(list) == 1 && list[0].Code == event.CoreStalled && list[0].Count == times {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", part, list)
			}
		}
		select { // what was said before
		case <-link.Alive():
		default:
		}
		select {
		case <-link.Alive():
			t.Errorf("all is said to be well without the %s", part)
		case <-time.After(2 * c.watchdog):
		}
	}
	alive()
	release := make(chan struct{})
	a.commands.do(func() { <-release })
	stalls("agent", 1)
	close(release)
	alive()
	c.mu.Lock()
	stalls("conductor", 2)
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
