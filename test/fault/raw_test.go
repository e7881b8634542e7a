//go:build faultpoints

package fault

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// The rings of the tests: small, so that a slot that is lost is missed.
const (
	classes = `
[[class]]
name = "s"
slot_size = 128
slots = 64
max_run = 8
[[class]]
name = "l"
slot_size = 1024
slots = 64
max_run = 8
`
	ringSlots = 64
	slotSize  = 128
)

// raw is an attachment that uses the words of the rings directly.
type raw struct {
	*attach.Session
	mu    sync.Mutex
	lanes map[uint16]*slots.Ring
}

func openRaw(ctx context.Context, socket string) (*raw, error) {
	r := &raw{lanes: map[uint16]*slots.Ring{}}
	s, err := attach.Open(ctx, socket, attach.Hello{Role: attach.RoleClient, Name: "raw"}, attach.Events{
		Lane: func(l attach.Lane, ring *slots.Ring) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lanes[l.ID] = ring
		},
	})
	if err != nil {
		return nil, err
	}
	r.Session = s
	return r, nil
}

// resolve looks up a method of node b, which has the daemon hand over the lanes to it,
// and returns the ring of small slots.
func (r *raw) resolve(ctx context.Context, service, method string) (*slots.Ring, error) {
	a, err := r.Ask(ctx, &attach.Message{Type: attach.TypeResolve, Target: &attach.Target{Node: "b", Service: service, Method: method}})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ring := r.lanes[a.Route.Lanes[0]]
	if ring == nil || ring.Geometry().Slots != ringSlots {
		return nil, fmt.Errorf("no ring of small slots among %v", r.lanes)
	}
	return ring, nil
}

func (r *raw) close() error {
	err := r.Close()
	r.Release()
	return err
}

// rings returns the lanes that it has.
func (r *raw) rings() []*slots.Ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*slots.Ring
	for _, l := range r.lanes {
		all = append(all, l)
	}
	return all
}

// lead claims and frees slots until the next claim begins at slot at. Others that use the
// ring meanwhile may hold the slot before it, for many rounds of a process that only claims,
// or move the cursor past it: it goes round until ctx ends.
func (r *raw) lead(ctx context.Context, ring *slots.Ring, at int) error {
	for ctx.Err() == nil {
		for range ringSlots {
			u, err := ring.Claim(r.Welcome.ID, 1)
			if err != nil {
				return err
			}
			ring.Free(u.Index, 1)
			ring.Freed(1)
			if (u.Index+1)%ringSlots == at%ringSlots {
				return nil
			}
		}
		time.Sleep(100 * time.Microsecond) // leaves processors to those who hold the slot
	}
	return fmt.Errorf("the cursor never came to slot %d", at)
}
