//go:build faultpoints

package fault

import (
	"maps"
	"testing"

	"github.com/rdmad/rdmad/internal/faultpoint"
)

// steady is how many calls of another process must go on while one is stopped.
const steady = 20

// A process that makes requests is stopped at every step: others go on meanwhile, nothing
// that it holds is taken from it, and when it may run again it ends well.
func TestStopClients(t *testing.T) {
	r := newRig(t)
	defer r.figures(t)
	var ends []string
	r.plan(t, false, func(s setting, places []place) {
		t.Run(s.String(), func(t *testing.T) {
			for _, p := range places {
				if p.n > 1 {
					continue
				}
				t.Run(p.String(), func(t *testing.T) {
					r.working.Lock()
					v := r.live(t, s, p.String()+":stop")
					stopped := v.awaitStop()
					r.working.Unlock()
					// A ring that is full of what a stopped process holds is full: it may have
					// come to the place before it freed what it fills the ring with.
					if stopped && len(r.strays()) <= ringSlots/2 {
						r.flows(t, steady)
					}
					v.resume()
					if v.end() {
						t.Error("it was killed")
					}
					ends = append(ends, v.outcomes)
					r.flows(t, 1)
				})
			}
			r.quiet(t)
		})
	})
	ended := outcomes{}
	for _, name := range ends {
		maps.Copy(ended, readOutcomes(t, name))
	}
	for id, how := range ended {
		if how == "maybe-executed" {
			t.Errorf("request %#x ended as %s although nobody died", id, how)
		}
	}
	judge(t, ended, r.executions())
}

// The same for processes of a service, beside another one.
func TestStopServices(t *testing.T) {
	b := newBench(t)
	defer b.figures(t)
	for _, w := range []work{{k: 2}, {fill: true}} {
		s := b.serveV(t, "")
		if !s.ready() {
			t.Fatalf("a servant does not start: %s", s.errs.String())
		}
		for range 4 {
			b.round(t, w)
		}
		_ = s.in.Close()
		s.end()
		t.Run(w.String(), func(t *testing.T) {
			for _, p := range s.passages().places(faultpoint.Service, func(string) bool { return true }) {
				if p.n == 1 {
					t.Run(p.String(), func(t *testing.T) { b.stopServant(t, w, p) })
				}
			}
			b.quiet(t)
		})
	}
	executed := readExecutions(t, b.executions)
	for id, how := range b.ended {
		if how == "maybe-executed" {
			t.Errorf("request %#x ended as %s although nobody died", id, how)
		}
	}
	judge(t, b.ended, executed)
}

// stopServant stops a servant, if it comes to the place, and lets it go on.
func (b *bench) stopServant(t *testing.T, w work, p place) {
	t.Helper()
	s := b.serveV(t, p.String()+":stop")
	// Requests wait for the one that is stopped, so they are made elsewhere.
	made := make(chan struct{})
	go func() {
		defer close(made)
		if s.ready() {
			for range 4 {
				b.round(t, w)
			}
		}
		_ = s.in.Close()
	}()
	if s.awaitStop() {
		b.flows(t, steady)
	}
	s.resume()
	<-made
	if s.end() {
		t.Error("it was killed")
	}
	b.flows(t, 1)
}
