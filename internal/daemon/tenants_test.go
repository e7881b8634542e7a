package daemon

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/server"
)

// A service in the core that ends its goroutine instead of returning has left as one that returns.
func TestTenantEndsItsGoroutine(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := r.settle(ctx, []Tenant{func(context.Context, string, func()) error {
		runtime.Goexit()
		return nil
	}})
	if !errors.Is(err, errTenantLeft) {
		t.Error(err)
	}
}

// What counts against a service in the core does not end it, nor keep it out: the core would end with it, for all domains.
func TestOffencesOfAServiceInTheCore(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	c, end := served(t, cfg, successors(t, cfg))
	defer end()
	tenant := func(ctx context.Context, socket string, settled func()) error {
		s, err := server.Attach(ctx, socket)
		if err != nil {
			return err
		}
		defer s.Close()
		settled()
		return s.Serve(ctx)
	}
	if err := c.settle(t.Context(), []Tenant{tenant}); err != nil {
		t.Fatal(err)
	}
	w := workerOf(t, c)
	w.domain.agent.Commands.Call(func() {
		for range c.cfg.Limits.Strikes {
			w.domain.view.Offence(w.view, agent.BadMessage)
		}
	})
	c.strikeOut(w.domain, w.view, c.cfg.Limits.Strikes, agent.BadMessage) // as the agent has it done, but now
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, attached := c.attached[w]; !attached || w.struck != 0 || len(c.outcasts) != 0 || len(c.tenancy.left) != 0 {
		t.Errorf("attached: %v, offences %d, kept out %v, left %d", attached, w.struck, c.outcasts, len(c.tenancy.left))
	}
	if n := c.counts().Rotations + c.counts().StruckOut; n != 0 {
		t.Errorf("%d rotations and workers that were disconnected", n)
	}
}

// An earlier core may have kept out a process with the number that this one has, which is dead then.
func TestOutcastWithTheNumberOfTheCore(t *testing.T) {
	c := &conductor{outcasts: map[int]int{}}
	w := &worker{domain: &domain{conductor: c}, pid: ownPID, struck: 1}
	c.castOut(w)
	if err := c.isOutcast(w); err != nil {
		t.Error(err)
	}
	if c.departed(w); len(c.outcasts) != 0 {
		t.Errorf("kept out: %v", c.outcasts)
	}
}
