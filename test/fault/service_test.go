//go:build faultpoints

package fault

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/slots"
)

// bench is service v on node b: one servant that stays, and those that die beside it.
type bench struct {
	*rig
	executions string
	do, fill   *client.Method
	region     *client.Region
	ended      outcomes
}

func newBench(t *testing.T) *bench {
	b := &bench{rig: newRig(t), ended: outcomes{}}
	b.executions = b.file("executions")
	stays := b.serveV(t, "")
	if !stays.ready() {
		t.Fatal("the servant that stays does not")
	}
	t.Cleanup(func() {
		_ = stays.in.Close()
		stays.end()
	})
	daemontest.Eventually(t, "service v is known", func() (err error) {
		if b.do, err = b.conn.Method(t.Context(), "b/v/do"); err == nil {
			b.fill, err = b.conn.Method(t.Context(), "b/v/fill")
		}
		return err
	})
	var err error
	if b.region, err = b.conn.AllocRegion(t.Context(), 4096); err != nil {
		t.Fatal(err)
	}
	return b
}

// servant is what a servant is told.
func (b *bench) servant(kill string) servantArgs {
	return servantArgs{Socket: b.b.Socket, Executions: b.executions, Kill: kill}
}

// serveV starts a servant.
func (b *bench) serveV(t *testing.T, kill string) *process {
	t.Helper()
	return b.spawn(t, "servant", b.servant(kill))
}

// work is what requests ask of servants.
type work struct {
	// fill lets them operate on memory of the caller.
	fill bool
	// k is the slots of a request.
	k int
}

func (w work) String() string {
	if w.fill {
		return "operations"
	}
	return fmt.Sprintf("calls-%d", w.k)
}

var works = []work{{k: 2}, {k: 1}, {k: 8}, {fill: true}}

// atOnce is how many requests are made at once.
const atOnce = 6

// round makes requests at once and notes how they end. There is always somebody who
// serves them, so none may end as not executed.
func (b *bench) round(t *testing.T, w work) {
	t.Helper()
	var ids [atOnce]uint64
	var futures [atOnce]*client.Future
	for i := range futures {
		ids[i] = b.runs.Add(1)
		req := binary.LittleEndian.AppendUint64(nil, ids[i])
		var err error
		if w.fill {
			ref, rerr := b.region.Ref(64*i, 64, client.MayWrite)
			if rerr != nil {
				t.Error(rerr)
				return
			}
			futures[i], err = b.fill.GoRegions(t.Context(), req, ref)
		} else {
			futures[i], err = b.do.Go(t.Context(), append(req, make([]byte, w.k*slotSize-slots.HeaderSize-8)...))
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
	for i, f := range futures {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		answer, err := f.Wait(ctx)
		cancel()
		how := outcome(ids[i], answer, err)
		if how == "not-executed" {
			t.Errorf("request %#x was not executed although a process was left: %v", ids[i], err)
		}
		if w.fill && how == "answered" {
			for off := 64 * i; off < 64*(i+1); off += 8 {
				if got := binary.LittleEndian.Uint64(b.region.Bytes()[off:]); got != ids[i] {
					t.Errorf("request %#x was answered, and left %#x at %d", ids[i], got, off)
				}
			}
		}
		b.ended[ids[i]] = how
	}
}

// rounds bounds how often requests are made for a servant to come to a point.
const rounds = 40

// TestKillServices kills processes of a service at every step, beside another one of the
// same service: what they had not begun goes to it, what they had begun may have been
// executed, and what they had finished is answered.
func TestKillServices(t *testing.T) {
	b := newBench(t)
	defer b.figures(t)
	tried := map[string]bool{}
	for _, w := range works {
		// One that lives shows where they come.
		s := b.serveV(t, "")
		if !s.ready() {
			t.Fatalf("a servant does not start: %s", s.errs.String())
		}
		for range 4 {
			b.round(t, w)
		}
		_ = s.in.Close()
		if s.end() {
			t.Fatal("it was killed")
		}
		places := s.passages().places(faultpoint.Service, func(point string) bool { return w.k > 0 || !tried[point] })
		for _, p := range places {
			tried[p.point] = true
		}
		t.Run(w.String(), func(t *testing.T) {
			for _, p := range places {
				t.Run(p.String(), func(t *testing.T) {
					for range tries {
						if b.killServant(t, w, p, false) || p.n > 1 {
							return
						}
					}
				})
			}
			b.quiet(t)
		})
	}
	// Where a process comes only when the agent happens to sleep, it may not have come: on a
	// busy machine the agent hardly ever does before a handler has returned.
	const rounds = 10
	for range rounds {
		for _, point := range b.left(faultpoint.Service) {
			for _, w := range works {
				if !b.hit[point] {
					t.Run(w.String()+"/"+point, func(t *testing.T) { b.killServant(t, w, place{point, 1}, true) })
				}
			}
		}
	}
	judge(t, b.ended, readExecutions(t, b.executions))
	count := map[string]int{}
	for _, how := range b.ended {
		count[how]++
	}
	t.Logf("%d requests ended as %v", len(b.ended), count)
	t.Run("every point", func(t *testing.T) { b.all(t, faultpoint.Service) })
}

// killServant lets a servant die at a place and reports whether it came there. With sleepy
// the agent has time to sleep meanwhile.
func (b *bench) killServant(t *testing.T, w work, p place, sleepy bool) (killed bool) {
	t.Helper()
	args := b.servant(p.String())
	if args.Slow = sleepy; sleepy {
		b.working.Lock()
	}
	s := b.spawn(t, "servant", args)
	if s.ready() {
		for range rounds {
			select {
			case <-s.over:
			default:
				b.round(t, w)
				continue
			}
			break
		}
	}
	if sleepy {
		b.working.Unlock()
	}
	_ = s.in.Close()
	killed = s.end()
	b.round(t, w) // the other one has what is left
	b.flows(t, 1)
	if at := slices.Collect(maps.Keys(s.passages().done)); killed && !slices.Equal(at, []string{p.point}) {
		t.Errorf("it was killed at %v", at)
	}
	if killed {
		b.hit[p.point] = true
	}
	return killed
}
