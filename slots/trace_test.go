package slots_test

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Stamps come back, to within what is kept of them, and are never taken for a mark.
func TestStamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		published := rapid.Int64Range(1<<41, 1<<60).Draw(t, "published")
		took := rapid.Int64Range(0, 1<<40).Draw(t, "took")
		now := published + rapid.Int64Range(0, 1<<39).Draw(t, "ago")
		v := slots.PackStamps(published-took, published)
		if slots.IsMark(v) {
			t.Fatalf("%#x is a mark", v)
		}
		b, p, ok := slots.UnpackStamps(v, now)
		if took == 0 && b == p-1 {
			b = p // where the word would be 0
		}
		if !ok || p != published || b < published-took || b-(published-took) > took/100000 {
			t.Fatalf("%d after %d became %d after %d, %v", took, published, p-b, p, ok)
		}
	})
}

// Whatever a worker writes instead is taken for stamps that lie in the past, or for none.
func TestWrongStamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(1<<41, 1<<60).Draw(t, "now")
		b, p, ok := slots.UnpackStamps(rapid.Uint64().Draw(t, "word"), now)
		if ok && (b > p || p > now || b <= 0) {
			t.Fatalf("began at %d, published at %d, now %d", b, p, now)
		}
	})
	for _, none := range []uint64{0, slots.MakeMark(5, 7)} {
		if _, _, ok := slots.UnpackStamps(none, 1<<50); ok {
			t.Errorf("%#x was taken for stamps", none)
		}
	}
}

func TestMarks(t *testing.T) {
	m := slots.MakeMark(0xffffffff, 9)
	if m != 0xffffffff_00000009 || !slots.IsMark(m) || slots.MarkKey(m) != slots.MarkKeyMask || slots.MarkKey(slots.MakeMark(6, 9)) != 6 {
		t.Errorf("mark %#x", m)
	}
	b := make([]byte, slots.HeaderSize)
	slots.SetTrace(b, m)
	var h slots.Header
	if h.Decode(b); h.Trace != m || binary.LittleEndian.Uint64(b[32:]) != m {
		t.Errorf("trace word %#x", h.Trace)
	}
	h.SetHandled(100, 130)
	if began, ended, ok := h.Handled(); !ok || began != 100 || ended != 130 || h.Deadline != 100 || h.Trace != 130 {
		t.Errorf("%+v", h)
	}
	for _, wrong := range []slots.Header{{}, {Deadline: 5}, {Deadline: 5, Trace: 4}, {Trace: 7}, {Deadline: 5, Trace: m}, {Deadline: -5, Trace: 7}} {
		if _, _, ok := wrong.Handled(); ok {
			t.Errorf("%+v was taken for stamps", wrong)
		}
	}
}

func TestTraceOffsets(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	mine, daemon := slots.NewWorkerRings(mem), slots.NewWorkerRings(mem)
	daemon.SetTracing(true)
	if shm.Uint32At(mem, 6400).Load() != 1 || !mine.Tracing() {
		t.Error("tracing is not at 6400")
	}
	if slots.ResumeWorkerRings(mem); mine.Tracing() {
		t.Error("the next core wants stamps")
	}
	mark := slots.MakeMark(3, 66)
	mine.SetTaken(mark, 77)
	if shm.Uint64At(mem, 7168+32).Load() != mark || shm.Uint64At(mem, 7168+40).Load() != 77 {
		t.Error("the third stamp is not at 7200")
	}
	if at, ok := daemon.Taken(mark); !ok || at != 77 {
		t.Error(at, ok)
	}
	if _, ok := daemon.Taken(mark + 64); ok {
		t.Error("a stamp for another mark")
	}
}
