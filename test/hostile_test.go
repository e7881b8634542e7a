package test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/slots"
)

// hostileRole publishes requests as fast as slots are free, whatever quota and share
// say, and frees them as soon as they are answered.
func hostileRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	lanes := map[uint16]*slots.Ring{}
	s, err := attach.Open(ctx, args.Socket, attach.Hello{Role: attach.RoleClient, Name: "hostile"}, attach.Events{
		Lane: func(l attach.Lane, r *slots.Ring) { lanes[l.ID] = r },
	})
	if err != nil {
		return err
	}
	a, err := s.Ask(ctx, &attach.Message{Type: attach.TypeResolve, Target: &attach.Target{Node: args.Node, Service: args.Service, Method: args.Method}})
	if err != nil {
		return err
	}
	id, me := a.Route.Lanes[0], s.Welcome.ID
	r := lanes[id]
	if err := say.Encode(0); err != nil {
		return err
	}
	var out []slots.Run
	for ctx.Err() == nil {
		for range 256 {
			u, err := r.Claim(me, 1)
			if err != nil {
				break
			}
			h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Length: 8, Answer: 8, Method: a.Route.Method, From: uint16(me)}
			copy(r.Payload(u), encoded(1))
			h.Encode(r.Header(u))
			if r.Publish(u, me) {
				out = append(out, u)
			}
		}
		if sleep := s.Bells.MarkLane(id); sleep != 0 {
			s.Bell.Ring()
			s.Bells.Rung(sleep)
		}
		left := out[:0]
		for _, u := range out {
			if r.Acquire(u, me) {
				r.Consume(u)
			} else {
				left = append(left, u)
			}
		}
		r.Freed(len(out) - len(left))
		out = left
		time.Sleep(200 * time.Microsecond) // processors are not what it is to be hostile with
	}
	return nil
}

// startHostile starts a hostile process.
func startHostile(t *testing.T, args roleArgs) *member {
	t.Helper()
	m := startMember(t, "hostile", args)
	var zero int
	m.hear(&zero)
	return m
}

// workerNamed returns the state of the worker with the name.
func workerNamed(s *status.Node, name string) (found status.Worker) {
	for _, w := range s.Workers {
		if w.Name == name {
			found = w
		}
	}
	return found
}

// A worker that does not care for its quota is refused what is beyond it, and the
// others are served.
func TestHostileWorkerBeyondItsQuota(t *testing.T) {
	c, args := shareRig(t, "[limits]\nworker_slots = 10\n", "sleep", 16)
	modest := startLoad(t, args)
	hostile := startHostile(t, args)
	eventually(t, "the daemon refuses", func() bool { return workerNamed(c.status("a"), "hostile").OverLimit > 10_000 })
	before := phaseNow()
	own := c.attach("a")
	for range 50 {
		if _, err := own.Call(bounded(t), "b/jobs/sleep", encoded(1)); err != nil {
			t.Fatalf("another process: %v", err)
		}
		s := c.status("a")
		if w := workerNamed(s, "hostile"); w.Slots > 8192/10 {
			t.Fatalf("it has %d slots in flight", w.Slots)
		}
		noneBeyond(t, s)
	}
	eventually(t, "the machine's clock goes on", func() bool { return phaseNow() > before+3 })
	calls := endLoad(modest)
	if n := during(calls, before, phaseNow()+1-before); n < 20 {
		t.Errorf("%d answers for the other process", n)
	}
	_ = hostile.kill()
	c.awaitQuiet("a", hostile.pid())
}

// A worker that does not care for its share is refused what is beyond it, and a
// greedy one beside it gets the same.
func TestHostileWorkerBeyondItsShare(t *testing.T) {
	c, args := shareRig(t, "", "sleep", 16)
	modest := startLoad(t, args)
	greedy := args
	greedy.Depth = 8192
	good := startLoad(t, greedy)
	hostile := startHostile(t, args)
	bounded := func() bool {
		s := c.status("a")
		w := workerNamed(s, "hostile")
		return w.OverLimit > 1000 && smallShare(s) > 0 && w.Slots <= smallShare(s)*3/2
	}
	eventually(t, "the daemon refuses", bounded)
	// Some phases are enough in which all get their processors; a machine may be busy.
	type window struct {
		from          int64
		looks, within int
	}
	var windows []window
	for quiet := 0; quiet < 6 && len(windows) < 12; {
		w := window{from: phaseNow() + 1}
		for phaseNow() < w.from+3 {
			if w.looks++; bounded() {
				w.within++
			}
			time.Sleep(pollPause)
		}
		if windows = append(windows, w); w.within >= w.looks/2 {
			quiet++
		}
	}
	noneBeyond(t, c.status("a"))
	_ = hostile.kill()
	modestCalls, greedyCalls := endLoad(modest), endLoad(good)
	if !slices.ContainsFunc(windows, func(w window) bool {
		few, much := during(modestCalls, w.from, 2), during(greedyCalls, w.from, 2)
		t.Logf("bounded in %d of %d looks; %d answers for a modest process, %d for a greedy one", w.within, w.looks, few, much)
		return w.within >= w.looks/2 && few >= 20 && much >= 20
	}) {
		t.Error("there is no time in which the hostile process is bounded and others get answers")
	}
	c.awaitQuiet("a", hostile.pid())
}
