package server

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

const (
	inlineMethod  = 7
	unknownMethod = 9
)

// Whatever a caller of the same node makes of its request after the agent has looked at it, the agent
// runs into no handler that may block, and waits for nobody.
func TestInlineTrustsNoHeader(t *testing.T) {
	for _, x := range []struct {
		what   string
		damage func(h *slots.Header)
		status slots.Status
	}{
		{"nothing", func(*slots.Header) {}, slots.StatusOK},
		{"another method", func(h *slots.Header) { h.Method = fuzzMethod }, slots.StatusNoService},
		{"no method", func(h *slots.Header) { h.Method = unknownMethod }, slots.StatusNoService},
		{"a part", func(h *slots.Header) { h.Flags |= slots.FlagPart }, slots.StatusInvalid},
		{"regions", func(h *slots.Header) { h.Refs, h.Length = 1, slots.RefSize }, slots.StatusInvalid},
		{"the ticket", func(h *slots.Header) { h.Ticket++ }, slots.StatusInvalid},
		{"the run", func(h *slots.Header) { h.Run = 3 }, slots.StatusInvalid},
		{"the length", func(h *slots.Header) { h.Length = 1 << 20 }, slots.StatusInvalid},
	} {
		t.Run(x.what, func(t *testing.T) {
			r := newExchangeRig(t)
			r.s.inline = &Call{server: r.s, inline: true}
			ran := 0
			r.s.handlers.Store(&map[uint32]handlers{
				fuzzMethod:   {call: func(*Call) error { t.Error("a handler ran that is not inline"); return nil }},
				inlineMethod: {call: func(c *Call) error { ran++; return c.Reply(c.Request()) }, inline: true},
			})
			u := slots.Run{Index: 4, Len: 1, Ticket: 1}
			h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Method: inlineMethod, Length: 8, Answer: 300}
			x.damage(&h)
			h.Encode(r.ring.Header(u))
			r.ring.Deliver(u.Index, 1, fuzzID, u.Ticket)
			r.s.handling.Lock() // by a Handle, which waits for the agent
			r.s.serveInline(slots.MakeHint(fuzzLane, u.Index, u.Ticket))
			r.s.handling.Unlock()
			if w := r.ring.AnswerWord(u.Index); w != slots.MakeWord(slots.Done, 1, fuzzID, u.Ticket) {
				t.Fatalf("the answer's word is %v", w)
			}
			var a slots.Header
			if !a.Decode(r.ring.Header(u)) || a.CheckAnswer(r.ring.Geometry(), 1, u.Ticket) != nil || a.Status != x.status {
				t.Errorf("the answer has status %v, want %v", a.Status, x.status)
			}
			if (ran == 1) != (x.status == slots.StatusOK) {
				t.Errorf("the handler ran %d times", ran)
			}
		})
	}
}

// A hint of a lane that is not mapped, of no slot, or of a request that was taken back does nothing.
func TestInlineHints(t *testing.T) {
	r := newExchangeRig(t)
	r.s.inline = &Call{server: r.s, inline: true}
	for _, h := range []slots.Hint{slots.MakeHint(fuzzLane+1, 0, 1), slots.MakeHint(fuzzLane, 1<<20, 1), slots.MakeHint(fuzzLane, 4, 1)} {
		r.s.serveInline(h)
	}
	for i := range r.ring.Geometry().Slots {
		if w := r.ring.AnswerWord(i); w != 0 {
			t.Errorf("slot %d: answer word %v", i, w)
		}
	}
}
