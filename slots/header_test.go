package slots_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

func FuzzHeader(f *testing.F) {
	var b [64]byte
	f.Add(b[:], 1)
	(&slots.Header{Ticket: 7, Length: 12, Run: 1, Kind: slots.KindRequest, Method: 3, Answer: 64}).Encode(b[:])
	f.Add(bytes.Clone(b[:]), 1)
	(&slots.Header{Ticket: 7, Length: 128, Run: 3, Kind: slots.KindAnswer, Flags: slots.FlagError, Status: slots.StatusRemote}).Encode(b[:])
	f.Add(bytes.Clone(b[:]), 3)
	f.Fuzz(func(t *testing.T, in []byte, run int) {
		if len(in) < 64 || run < 1 || run > small.MaxRun {
			return
		}
		in = in[:64]
		var h slots.Header
		if h.Decode(in) {
			out := make([]byte, 64)
			h.Encode(out)
			if !bytes.Equal(in, out) {
				t.Errorf("% x became % x", in, out)
			}
		}
		fits := func(n uint32) bool { return int(n) <= run*small.SlotSize-64 }
		if h.CheckRequest(small, run) == nil {
			if (h.Kind != 1 && h.Kind != 2) || h.Flags&^(slots.FlagRefs|slots.FlagPart|slots.FlagReceipt|slots.FlagInPlace|slots.FlagCancel|slots.FlagCarry) != 0 || h.To != 0 && h.Flags&slots.FlagPart == 0 || h.Status != 0 || h.Refs > 8 || h.Length < 32*uint32(h.Refs) || int(h.Run) != run || !fits(h.Length) || !fits(h.Answer) {
				t.Errorf("accepted the request %+v", h)
			}
		}
		if h.CheckAnswer(small, run, h.Ticket) == nil {
			if h.Kind != 3 || int(h.Run) != run || !fits(h.Length) || (h.Status != 0) != (h.Flags&1 != 0) {
				t.Errorf("accepted the answer %+v", h)
			}
		}
	})
}

// What a glance sees is what is encoded.
func TestGlance(t *testing.T) {
	b := make([]byte, slots.HeaderSize)
	h := slots.Header{Ticket: 7, From: 9, Length: 12, Run: 1, Kind: slots.KindOneWay, Flags: slots.FlagRefs | slots.FlagPart, Refs: 3, Method: 5, Answer: 64, Deadline: 11, Status: 13, To: 15}
	h.Encode(b)
	if kind, flags, refs := slots.GlanceKind(b), slots.GlanceFlags(b), slots.GlanceRefs(b); kind != h.Kind || flags != h.Flags || refs != int(h.Refs) {
		t.Errorf("kind %d, flags %#x, %d references", kind, flags, refs)
	}
	if length, deadline := slots.Glance(b); length != h.Length || deadline != h.Deadline {
		t.Errorf("%d bytes, deadline %d", length, deadline)
	}
}

func TestHeaderZeroBits(t *testing.T) {
	for i, change := range map[int]string{5: "ticket", 44: "references without the flag", 45: "reserved", 58: "after without an order", 63: "after without an order"} {
		b := make([]byte, 64)
		b[i] = 1
		var h slots.Header
		if h.Decode(b) {
			t.Errorf("accepted byte %d (%s)", i, change)
		}
	}
	b := make([]byte, 64)
	for flags := range 256 {
		b[15] = byte(flags)
		var h slots.Header
		if ok := h.Decode(b); ok != (flags&int(slots.FlagRefs) == 0) {
			t.Errorf("flags %#x: %v", flags, ok)
		}
	}
}

func TestHeaderChecks(t *testing.T) {
	request := slots.Header{Ticket: 9, Length: 192, Run: 2, Kind: slots.KindRequest, Answer: 192}
	answer := slots.Header{Ticket: 9, Length: 192, Run: 2, Kind: slots.KindAnswer}
	tests := []struct {
		name   string
		change func(h *slots.Header)
		run    int
	}{
		{"kind", func(h *slots.Header) { h.Kind = 0 }, 2},
		{"kind out of range", func(h *slots.Header) { h.Kind = 4 }, 2},
		{"run", func(h *slots.Header) { h.Run = 3 }, 2},
		{"other run", func(*slots.Header) {}, 3},
		{"length", func(h *slots.Header) { h.Length = 193 }, 2},
		{"huge length", func(h *slots.Header) { h.Length = 1<<32 - 1 }, 2},
		{"no run", func(h *slots.Header) { h.Run, h.Length = 0, 1000 }, 0},
		{"status", func(h *slots.Header) { h.Status = 1 }, 2},
		{"flag", func(h *slots.Header) { h.Flags = slots.FlagError }, 2},
		{"flags of one that cancels", func(h *slots.Header) { h.Flags = slots.FlagCancel }, 2},
		{"process", func(h *slots.Header) { h.To = 3 }, 2},
		{"process that cannot be", func(h *slots.Header) { h.Flags, h.To = slots.FlagPart, slots.MaxOwner+1 }, 2},
		{"slot to come after", func(h *slots.Header) { h.Order, h.After, h.Kind = 1, uint16(small.Slots), slots.KindOneWay }, 2},
		{"references", func(h *slots.Header) { h.Flags, h.Refs, h.Length = slots.FlagRefs, 3, 95 }, 2},
	}
	for _, tt := range tests {
		q, a := request, answer
		tt.change(&q)
		tt.change(&a)
		if err := q.CheckRequest(small, tt.run); !errors.Is(err, slots.ErrProtocol) {
			t.Errorf("request with wrong %s: %v", tt.name, err)
		}
		if err := a.CheckAnswer(small, tt.run, 9); !errors.Is(err, slots.ErrProtocol) {
			t.Errorf("answer with wrong %s: %v", tt.name, err)
		}
	}
	if err := request.CheckRequest(small, 2); err != nil {
		t.Error(err)
	}
	if err := answer.CheckAnswer(small, 2, 9); err != nil {
		t.Error(err)
	}
	if answer.CheckAnswer(small, 2, 8) == nil {
		t.Error("accepted another ticket")
	}
	q := request
	q.Flags, q.To, q.Order, q.After, q.AfterTicket = slots.FlagPart, slots.MaxOwner, 65535, uint16(small.Slots-1), 1<<32-1
	if err := q.CheckRequest(small, 2); err != nil {
		t.Error(err)
	}
	q = request
	q.Answer = 193
	if q.CheckRequest(small, 2) == nil {
		t.Error("accepted room for an answer that the run has not")
	}
}
