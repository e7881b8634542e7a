//go:build faultpoints

package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/faultpoint"
)

// Close waits for who takes in answers because the daemon has moved some: the slots that it is about to
// free would be another process's by then, with requests under way.
func TestCloseBesideSpill(t *testing.T) {
	a, b := daemontest.Pair(t, impatient+tiny)
	g := newGate()
	defer g.Open()
	serve(t, b, 100, handlers{"gate": g.handle})
	c, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	m := method(t, c, "b/t/echo")
	other := method(t, attach(t, a), "b/t/gate").With(client.AnswerSize(8), client.NoWait())
	seen, goOn := make(chan struct{}), make(chan struct{})
	faultpoint.Do("answer.seen", 1, func() {
		close(seen)
		<-goOn
	})
	// Nobody waits for these. They are spread over more than the daemon's patience, so that answers lie in slots
	// when it moves the first.
	var left []*client.Future
	for reached := false; !reached && len(left) < 60; {
		f, err := m.Go(t.Context(), []byte("y"))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, f)
		select {
		case <-seen:
			reached = true
		case <-time.After(5 * time.Millisecond):
		}
	}
	select {
	case <-seen: // by who hears that some were moved
	case <-time.After(patience):
		t.Fatal("the daemon moves no answers")
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	var theirs []*client.Future
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) && len(theirs) < 64; { // all slots, if the daemon has got them
		f, err := other.Go(t.Context(), fmt.Appendf(nil, "%08d", len(theirs)))
		switch {
		case err == nil:
			theirs = append(theirs, f)
		case errors.Is(err, client.ErrBackpressure):
			time.Sleep(time.Millisecond)
		default:
			t.Fatal(err)
		}
	}
	for range theirs {
		<-g.entered
	}
	close(goOn)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if len(theirs) == 64 {
		if f, err := other.Go(t.Context(), []byte("intruder")); err == nil {
			t.Error("a slot of a request that is under way was given away")
			theirs = append(theirs, f)
		}
	}
	g.Open()
	for i, f := range theirs {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if got, err := f.Wait(ctx); err != nil {
			t.Errorf("request %d of the other connection: %q, %v", i, got, err)
		}
		cancel()
	}
	for i, f := range left {
		if got, err, ok := f.Result(); !ok || err == nil && string(got) != "y" {
			t.Errorf("future %d after Close: %q, %v, %v", i, got, err, ok)
		}
	}
	st, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"protocol_errors", "damages", "offences", "lane_failures"} {
		if n := st.Counters[k]; n != 0 {
			t.Errorf("%s: %d", k, n)
		}
	}
}
