package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Tenant is a service that lives in the core's process. It attaches to the socket like any
// other, with a context that is made of ctx, calls settled when it has registered its
// methods, and returns when ctx ends, which it does once the node has drained. If it returns
// before, so does Core.
type Tenant func(ctx context.Context, socket string, settled func()) error

// tenancy is what a conductor knows of its tenants.
type tenancy struct {
	// expecting: not all have settled. Requests for methods that nobody serves wait.
	expecting atomic.Bool
	// left has the error of each that has left before its time; nil without tenants.
	left chan error
}

var errTenantLeft = errors.New("it returned before the node stopped")

// settle starts the tenants and returns when all have settled, or one has left, or ctx has
// ended.
func (c *conductor) settle(ctx context.Context, tenants []Tenant) error {
	if len(tenants) == 0 {
		return nil
	}
	c.tenancy.left = make(chan error, len(tenants))
	settled := make(chan struct{}, len(tenants))
	for _, t := range tenants {
		c.spawn(func() {
			err := errTenantLeft
			defer func() { // also when it ends its goroutine (runtime.Goexit)
				if c.ctx.Err() == nil {
					c.tenancy.left <- fmt.Errorf("service in the core: %w", err)
				}
			}()
			socket := c.live().Node.Socket
			if e := t(attach.Within(c.ctx, c, socket), socket, func() { settled <- struct{}{} }); e != nil {
				err = e
			}
		})
	}
	for range tenants {
		select {
		case <-settled:
		case err := <-c.tenancy.left:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	c.tenancy.expecting.Store(false)
	c.notify()
	c.mu.Unlock()
	c.eachDomain((*agent.Domain).ExpectNone)
	return nil
}

// expectMethods lets the agent keep requests for the methods that were there before until
// the tenants have settled: one of them may have served them.
func (d *domain) expectMethods() {
	d.agent.Commands.Call(func() {
		for _, m := range d.methods {
			d.view.MethodFor(m.id)
		}
	})
}

// Inline implements attach.Core.
func (c *conductor) Inline(domain string, worker int, method uint32, serve func(slots.Hint)) error {
	known := false
	c.tenantsAgent(domain, worker, func(d *agent.Domain, w *agent.Worker) {
		if m := d.Method(method); m != nil && !w.Gone && !w.Withdrawn {
			m.Inline, m.Handle, known = w, serve, true
			if serve == nil {
				m.Inline = nil
			}
		}
	})
	if !known {
		return fmt.Errorf("%w: worker %d of domain %s", attach.ErrClosed, worker, domain)
	}
	return nil
}

// Leave implements attach.Core.
func (c *conductor) Leave(domain string, worker int) {
	c.tenantsAgent(domain, worker, (*agent.Domain).LeaveInline)
}

// Stops implements attach.Core.
func (c *conductor) Stops() bool { return c.ctx.Err() != nil }

// tenantsAgent has the agent of a worker run f, and waits for that. If there is no such worker,
// or the agent has ended, f does not run.
func (c *conductor) tenantsAgent(domain string, worker int, f func(*agent.Domain, *agent.Worker)) {
	for _, d := range c.allDomains() {
		if d.name != domain {
			continue
		}
		d.agent.Commands.Call(func() {
			if w := d.view.Workers[worker]; w != nil {
				f(d.view, w)
			}
		})
	}
}

// vacateTime is how long tenants may take to finish what they have begun when the core hands
// over. Together with haltTimeout it is less than the supervisor waits.
const vacateTime = time.Second

// vacate gives the tenants time to finish what they have begun, and no new requests, which the next
// core finds waiting. Inline handlers go on until the agents rest: they begin and end
// within a cycle.
func (c *conductor) vacate() {
	if c.tenancy.left == nil {
		return
	}
	for late := time.After(vacateTime); ; {
		domains := c.allDomains()
		busy := make(chan int, len(domains))
		asked, sum := 0, 0
		for _, d := range domains {
			if d.agent.Commands.Do(func() { busy <- d.view.DismissOwn() }) {
				asked++
			}
		}
		for range asked {
			select {
			case n := <-busy:
				sum += n
			case <-late:
				return
			}
		}
		if sum == 0 || !sleep(c.ctx, drainStep) {
			return
		}
	}
}
