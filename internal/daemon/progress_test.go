package daemon

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
)

// The supervisor is told that all is well while an agent takes commands and the conductor's
// lock can be had, not while either cannot, and again when both can.
func TestWatchdogStalls(t *testing.T) {
	beats, err := handoff.NewPulse()
	if err != nil {
		t.Fatal(err)
	}
	defer beats.Close()
	events := event.New(new(bytes.Buffer), event.Options{Process: "core"})
	c := &conductor{log: events.Logger(), pulse: beats, beatEvery: 20 * time.Millisecond}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	a, err := agent.New("agent0", agent.IdleStrategy{}, 16, nil, c.log)
	if err != nil {
		t.Fatal(err)
	}
	c.agents = []*agent.Agent{a}
	a.Start(&c.agentsDone)
	done := make(chan struct{})
	go func() { c.watchProgress(); close(done) }()
	alive := func() {
		t.Helper()
		before, end := beats.Beats.Load(), time.Now().Add(2*time.Minute)
		for beats.Beats.Load() == before {
			if time.Now().After(end) {
				t.Fatal("the supervisor is not told that all is well")
			}
			time.Sleep(time.Millisecond) // between two looks
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
		for last := beats.Beats.Load() - 1; last != beats.Beats.Load(); {
			if last = beats.Beats.Load(); time.Now().After(end) {
				t.Fatalf("all is said to be well without the %s", part)
			}
			time.Sleep(8 * c.beatEvery) // it was said before, unless it goes on
		}
	}
	alive()
	release := make(chan struct{})
	before := said()
	a.Commands.Do(func() { <-release })
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
	a.Commands.Do(func() { a.Stop = true })
	c.agentsDone.Wait()
	if !strings.Contains(events.Errors()[0].Text, "no progress") {
		t.Errorf("%+v", events.Errors())
	}
}

// A core that stops says that all is well to its end, however long what it has begun with takes then: the supervisor, which bounds
// that, would take it for one that hangs.
func TestBeatsOfAStop(t *testing.T) {
	beats, err := handoff.NewPulse()
	if err != nil {
		t.Fatal(err)
	}
	defer beats.Close()
	c, err := newConductor(parsed(t, ""), 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	c.pulse, c.beatEvery = beats, time.Millisecond
	stopping, goOn := make(chan struct{}), make(chan struct{})
	if !c.spawn(func() {
		<-c.ctx.Done()
		close(stopping)
		<-goOn
	}) {
		t.Fatal("it stops already")
	}
	stopped := make(chan struct{})
	go func() {
		c.stop()
		close(stopped)
	}()
	<-stopping
	before := beats.Beats.Load()
	eventually(t, "it beats", func() error {
		if n := beats.Beats.Load() - before; n < 5 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	close(goOn)
	<-stopped
}
