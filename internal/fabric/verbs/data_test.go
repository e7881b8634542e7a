//go:build verbs && cgo && linux

package verbs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A group of messages costs one call into C to post, one to poll, and nothing on the
// heap.
func TestCostOfAGroup(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 1024, false)
	a, b := r.pair(64, 64)
	const group = 16
	wrs := make([]fabric.SendWR, group)
	recvs := make([]fabric.RecvWR, group)
	out := make([]fabric.Completion, 256)
	cycle := func() {
		if n, err := b.ep.PostRecv(recvs); n != group || err != nil {
			t.Fatal(n, err)
		}
		for i := range wrs {
			wrs[i] = writeImm(a, b, 512, uint32(i))
			wrs[i].Flags = 0
		}
		wrs[group-1].Flags = fabric.FlagSignaled
		if n, err := a.ep.PostSend(wrs); n != group || err != nil {
			t.Fatal(n, err)
		}
		for came := 0; came < group; {
			n, err := r.cq[1].Poll(out)
			if err != nil {
				t.Fatal(err)
			}
			came += n
		}
		for n := 0; n == 0; {
			n, _ = r.cq[0].Poll(out)
		}
	}
	cycle()
	sends, posts := a.ep.Stats(), b.ep.Stats()
	cycle()
	if n := a.ep.Stats().SendCalls - sends.SendCalls; n != 1 {
		t.Errorf("%d calls to post a group", n)
	}
	if n := a.ep.Stats().Signaled - sends.Signaled; n != 1 {
		t.Errorf("%d completions for a group", n)
	}
	if n := b.ep.Stats().RecvCalls - posts.RecvCalls; n != 1 {
		t.Errorf("%d calls to post receives", n)
	}
	// One Poll is one call.
	polls := r.cq[0].Stats().Polls
	if _, err := r.cq[0].Poll(out); err != nil || r.cq[0].Stats().Polls != polls+1 {
		t.Errorf("%d calls for a Poll: %v", r.cq[0].Stats().Polls-polls, err)
	}
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations per group", n)
	}
}

// What a cycle of a busy lane posts, groups of one and of several writes, costs one call
// and one completion, and what is small travels in its work request. When the queue is
// full before the cycle's end, completions of its own make room.
func TestCostOfACycle(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 1024, false)
	const depth, groups, cycles = 256, 20, 30
	a, b := r.pair(depth, 2*groups)
	limit := r.dev[0].Caps().MaxInline
	arrived := 0
	for cycle := range cycles {
		if n, err := b.ep.PostRecv(make([]fabric.RecvWR, groups)); n != groups || err != nil {
			t.Fatal(n, err)
		}
		var wrs []fabric.SendWR
		small := 0
		for g := range groups {
			part := writeImm(a, b, 1024, 0)
			part.Op, part.Flags = fabric.OpWrite, 0
			last := writeImm(a, b, 32+64*(g%8), uint32(cycle*groups+g))
			last.Flags = 0
			if g%2 == 0 {
				wrs = append(wrs, part)
			}
			if wrs = append(wrs, last); int(last.Local.Len) <= limit {
				small++
			}
		}
		wrs[len(wrs)-1].Flags = fabric.FlagSignaled
		before := a.ep.Stats()
		if n, err := a.ep.PostSend(wrs); n != len(wrs) || err != nil {
			t.Fatal(n, err)
		}
		after := a.ep.Stats()
		if calls, signaled, inline := after.SendCalls-before.SendCalls, after.Signaled-before.Signaled, after.Inline-before.Inline; calls != 1 || signaled != 1 || inline != uint64(small) {
			t.Fatalf("%d calls, %d signaled, %d of %d inline", calls, signaled, inline, small)
		}
		arrived += groups
		r.until("the cycle", func() bool {
			return r.count(1, fabric.OpRecvImm) == arrived && r.count(0, fabric.OpWriteImm) == cycle+1
		})
	}
	// Each message has an arrival, and each cycle one completion at the sender.
	if s, n := r.cq[0].Stats(), uint64(cycles); s.Completions != n {
		t.Errorf("%d completions for %d cycles", s.Completions, n)
	}
	if s := r.cq[1].Stats(); s.Completions != cycles*groups {
		t.Errorf("%d completions for %d arrivals", s.Completions, cycles*groups)
	}
	// More than half of the queue in one go is not left without a completion.
	long := make([]fabric.SendWR, depth)
	for i := range long {
		long[i] = writeImm(a, b, 8, 0)
		long[i].Op, long[i].Flags = fabric.OpWrite, 0
	}
	before := a.ep.Stats()
	if n, err := a.ep.PostSend(long); n != depth || err != nil {
		t.Fatal(n, err)
	}
	if n := a.ep.Stats().Signaled - before.Signaled; n != 2 {
		t.Errorf("%d of %d are signaled, want every %dth", n, depth, depth/2)
	}
}

// hwCounters returns the sum of the device's counters with the given word in their
// names; ok is false if it has none.
func hwCounters(d *Device, word string) (sum int, ok bool) {
	names, _ := filepath.Glob(filepath.Join("/sys/class/infiniband", d.name, "ports", strconv.Itoa(d.port.Number), "hw_counters", "*"+word+"*"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			continue
		}
		sum, ok = sum+n, true
	}
	return sum, ok
}

// Receives that are refilled in time keep completing, far past the depth and without
// ever making the peer wait.
func TestSteadyState(t *testing.T) {
	for _, event := range []bool{false, true} {
		t.Run(map[bool]string{false: "busy", true: "event"}[event], func(t *testing.T) {
			needDevice(t)
			r := newRig(t, Default(), 1024, event)
			const depth, total = 64, 3000
			a, b := r.pair(depth, depth)
			recvs := make([]fabric.RecvWR, depth)
			if n, err := b.ep.PostRecv(recvs); n != depth || err != nil {
				t.Fatal(n, err)
			}
			before, counted := hwCounters(r.dev[0], "rnr")
			sent, came, spent := 0, 0, 0
			r.until("messages", func() bool {
				for _, c := range r.got[1] {
					if c.Op != fabric.OpRecvImm || c.Status != fabric.StatusSuccess || c.Imm != uint32(came) {
						t.Fatalf("arrival %d is %+v", came, c)
					}
					came++
					spent++
				}
				if spent >= depth/4 {
					n, err := b.ep.PostRecv(recvs[:spent])
					r.must(err)
					spent -= n
				}
				r.got[0], r.got[1] = r.got[0][:0], r.got[1][:0]
				// Never more than there are receives for.
				for sent < total && sent-came < depth/2 {
					if n, _ := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 64, uint32(sent))}); n == 0 {
						break
					}
					sent++
				}
				return came == total
			})
			if after, _ := hwCounters(r.dev[0], "rnr"); counted && after != before {
				t.Errorf("the receiver was not ready %d times", after-before)
			} else if !counted {
				t.Log("the device does not count how often a receiver was not ready")
			}
			if s := r.cq[1].Stats(); event && s.Events > s.Arms {
				t.Errorf("%d events for %d arms", s.Events, s.Arms)
			}
		})
	}
}

// More events than are acknowledged at once, and a rest: the queue can be destroyed.
func TestEventsAreAcknowledged(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 1024, true)
	a, b := r.pair(16, 16)
	const rounds = ackBatch + 17
	for i := range rounds {
		if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		wr := writeImm(a, b, 8, uint32(i))
		if ok, err := r.cq[1].Arm(); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if n, err := a.ep.PostSend([]fabric.SendWR{wr}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.until("event", func() bool { return r.cq[1].Stats().Events == uint64(i+1) && r.count(1, fabric.OpRecvImm) == i+1 })
	}
	if n := int(r.cq[1].lib.unacked); n != rounds%ackBatch {
		t.Errorf("%d events are not acknowledged after %d", n, rounds)
	}
}

// A caller that never asks for completions does not fill the queue for ever.
func TestUnsignaledOnly(t *testing.T) {
	needDevice(t)
	for _, depth := range []int{1, 2, 3, 16} {
		r := newRig(t, Default(), 256, false)
		a, b := r.pair(depth, 16)
		wr := writeImm(a, b, 8, 0)
		wr.Op, wr.Flags = fabric.OpWrite, 0
		posted := 0
		r.until("room", func() bool {
			n, err := a.ep.PostSend([]fabric.SendWR{wr, wr, wr})
			if n < 3 && err == nil {
				t.Fatal("fewer taken without an error")
			}
			posted += n
			return posted > 10*depth
		})
		if n := len(r.got[0]); n != 0 {
			t.Errorf("depth %d: %d completions that nobody asked for", depth, n)
		}
	}
}

// What fits a work request travels in it; its memory may be reused at once only if
// that was asked for.
func TestAutomaticInline(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 256, false)
	a, b := r.pair(16, 16)
	limit := r.dev[0].Caps().MaxInline
	if limit == 0 {
		t.Skip("the device has no inline data")
	}
	if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 3)); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i, n := range []int{0, limit, limit + 1} {
		if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, n, uint32(i))}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := a.ep.Stats().Inline; n != 1 {
		t.Errorf("%d work requests carried their data, want 1", n)
	}
	r.until("arrivals", func() bool { return r.count(1, fabric.OpRecvImm) == 3 })
}
