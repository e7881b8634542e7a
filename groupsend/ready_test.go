package groupsend_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/slots"
)

// A planner finds what a Plan would send, wherever it lies, and takes none of it.
func TestReadyIsWhatAPlanSends(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4})
		p := groupsend.NewRequests(r, 255)
		var claimed []slots.Run
		plan := func() {
			want := p.Ready()
			if again := p.Ready(); again != want {
				rt.Fatalf("ready %+v, then %+v", want, again)
			}
			c := &clerk{}
			n, _ := p.Plan(c, 1000)
			bytes := 0
			for _, g := range c.groups {
				bytes += g.Bytes
			}
			// A group has the rest of a message's last slot in it, but for its last.
			if n != want.Messages || want.Bytes > bytes || bytes > want.Bytes+128*n || want.Open != 0 {
				rt.Fatalf("planned %d messages of %d bytes, ready %+v", n, bytes, want)
			}
			for i := range 64 {
				if r.Word(i).State() == slots.Taken {
					r.Free(i, r.Word(i).Run())
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim": func(rt *rapid.T) {
				length := rapid.IntRange(0, 300).Draw(rt, "length")
				u, err := r.Claim(owner, r.Geometry().RunFor(length))
				if err != nil {
					return
				}
				h := slots.Header{Ticket: u.Ticket, Length: uint32(length), Run: uint16(u.Len), Kind: slots.KindOneWay}
				h.Encode(r.Header(u))
				claimed = append(claimed, u)
			},
			"publish": func(rt *rapid.T) {
				if len(claimed) > 0 {
					k := rapid.IntRange(0, len(claimed)-1).Draw(rt, "which")
					r.Publish(claimed[k], owner)
					claimed = append(claimed[:k], claimed[k+1:]...)
				}
			},
			"rescan": func(*rapid.T) { p.Rescan() },
			"plan":   func(*rapid.T) { plan() },
		})
	})
}

func TestReadyStopsAtAFullGroup(t *testing.T) {
	r, _ := newRing(t, wide)
	p := groupsend.NewRequests(r, 5)
	for range 9 {
		send(t, r, 10)
	}
	if w := p.Ready(); w.Messages != 5 || w.Bytes != 5*(slots.HeaderSize+10) || w.Deadline != 0 {
		t.Errorf("ready %+v", w)
	}
	p.Rescan()
	if w := p.Ready(); w.Messages != 5 {
		t.Errorf("ready %+v", w)
	}
}

// What a worker writes into its headers can be anything.
func TestReadyOfNonsense(t *testing.T) {
	r, _ := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	for _, deadline := range []int64{77, -5, 0, 99} {
		u := send(t, r, 10)
		h := slots.Header{Length: 1<<32 - 1, Deadline: deadline}
		h.Encode(r.Header(u))
	}
	if w := p.Ready(); w.Messages != 4 || w.Bytes != 4*(slots.HeaderSize+128) || w.Deadline != -5 {
		t.Errorf("ready %+v", w)
	}
}
