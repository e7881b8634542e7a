package slots_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/slots"
)

func TestWordBits(t *testing.T) {
	for _, c := range []struct {
		w    slots.Word
		want uint64
	}{
		{slots.MakeWord(7, 0, 0, 0), 0x7},
		{slots.MakeWord(0, 1, 0, 0), 1 << 3},
		{slots.MakeWord(0, 511, 0, 0), 0xff8},
		{slots.MakeWord(0, 0, 1, 0), 1 << 12},
		{slots.MakeWord(0, 0, 4095, 0), 0xfff000},
		{slots.MakeWord(0, 0, 0, 1), 1 << 24},
		{slots.MakeWord(0, 0, 0, 1<<40-1), 0xffffffffff000000},
		{slots.MakeWord(slots.Pub, 3, 0xabc, 0x123456789a), 0x123456789a_abc_01b},
		{slots.MakeWord(15, 1<<9|1, 1<<12|1, 1<<40|1), 1<<24 | 1<<12 | 1<<3 | 7}, // too large: cut off
	} {
		if uint64(c.w) != c.want {
			t.Errorf("%v is %#x, want %#x", c.w, uint64(c.w), c.want)
		}
	}
}

func FuzzWord(f *testing.F) {
	f.Add(uint64(0))
	f.Add(^uint64(0))
	f.Add(uint64(0x123456789a_abc_01b))
	f.Fuzz(func(t *testing.T, x uint64) {
		w := slots.Word(x)
		if back := slots.MakeWord(w.State(), w.Run(), w.Owner(), w.Ticket()); back != w {
			t.Errorf("%#x became %#x", x, uint64(back))
		}
		if w.State() > 7 || w.Run() < 0 || w.Run() > slots.MaxRun || w.Owner() < 0 || w.Owner() > slots.MaxOwner || w.Ticket() > slots.TicketMask {
			t.Errorf("%#x: a field out of range", x)
		}
		v := w.With(slots.Ans)
		if v.State() != slots.Ans || v.Run() != w.Run() || v.Owner() != w.Owner() || v.Ticket() != w.Ticket() {
			t.Errorf("%v in another state is %v", w, v)
		}
		if w.String() == "" {
			t.Error("no text")
		}
	})
}

func TestTicketNewer(t *testing.T) {
	const top = 1<<40 - 1
	for _, c := range []struct {
		a, b uint64
		want bool
	}{
		{1, 0, true}, {0, 1, false}, {5, 5, false}, {0, top, true}, {top, 0, false},
		{1<<39 - 1, 0, true}, {1 << 39, 0, false}, {2, top - 2, true},
	} {
		if got := slots.TicketNewer(c.a, c.b); got != c.want {
			t.Errorf("TicketNewer(%d, %d) is %v", c.a, c.b, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Uint64Range(0, top).Draw(t, "a")
		step := rapid.Uint64Range(1, 1<<39-1).Draw(t, "step")
		b := (a + step) & top
		if !slots.TicketNewer(b, a) || slots.TicketNewer(a, b) || slots.TicketNewer(a, a) {
			t.Fatalf("%d is %d after %d", b, step, a)
		}
		// A bounded number of steps further is newer than both.
		more := rapid.Uint64Range(0, 1<<39-1-step).Draw(t, "more")
		if c := (b + more) & top; !slots.TicketNewer(c, a) {
			t.Fatalf("%d is not newer than %d", c, a)
		}
	})
}
