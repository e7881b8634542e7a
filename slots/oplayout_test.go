package slots_test

import (
	"bytes"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Like layout_test.go: the numbers are those of docs/layout.md.

func TestOpOffsets(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	mine, daemon := slots.NewOpRing(mem), slots.NewOpRing(mem)
	for range 2 {
		if !mine.Submit(&slots.Op{Kind: slots.OpRead, Ref: 7}) {
			t.Fatal("no room")
		}
	}
	var o slots.Op
	if ok, more := daemon.Next(&o); !ok || !more {
		t.Fatal("no operation")
	}
	for i := range 3 {
		if !daemon.Complete(&slots.Result{Cookie: 0x50 + uint64(i)}) {
			t.Fatal("no room for a result")
		}
	}
	daemon.Wake()
	var r slots.Result
	mine.Take(&r)
	mine.PrepareSleep()
	mine.Ring()
	for off, want := range map[int]uint64{73728: 2, 73856: 1, 73984: 3, 74112: 1} {
		if got := shm.Uint64At(mem, off).Load(); got != want {
			t.Errorf("the word at %d is %d, want %d", off, got, want)
		}
	}
	if shm.Uint32At(mem, 74240).Load() != 1 || shm.Uint32At(mem, 74368).Load() != 1 {
		t.Error("asleep is not at 74240 or the bell not at 74368")
	}
	if mem[77824] != 2 || mem[77824+64] != 2 || mem[77825] != 7 {
		t.Error("operations are not at 77824")
	}
	if mem[94208] != 0x50 || mem[94208+32] != 0x51 || mem[94208+64] != 0x52 {
		t.Error("results are not at 94208")
	}
}

// seq is n bytes that count up from first.
func seq(first byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

func TestOpBytes(t *testing.T) {
	o := slots.Op{
		Kind: 1, Ref: 0x01, Lane: 0x0302, Slot: 0x07060504, Ticket: 0x0f0e0d0c0b0a0908, Offset: 0x1716151413121110,
		Length: 0x1f1e1d1c1b1a1918, Local: 0x2726252423222120, LocalOffset: 0x2f2e2d2c2b2a2928, Cookie: 0x3736353433323130,
	}
	want := append(seq(0, 56), make([]byte, 8)...)
	got := bytes.Repeat([]byte{0xee}, 64)
	o.Encode(got)
	want[0] = 1
	if !bytes.Equal(got, want) {
		t.Errorf("a write is\n% x, want\n% x", got, want)
	}
	a := o
	a.Kind, a.Local, a.LocalOffset, a.Compare, a.Swap = slots.OpCompareSwap, 0, 0, uint64(o.Local), o.LocalOffset
	a.Encode(got)
	want[0] = 3
	if !bytes.Equal(got, want) {
		t.Errorf("a compare and swap is\n% x, want\n% x", got, want)
	}

	p := slots.Piece{Offset: 0x0706050403020100, Local: 0x0f0e0d0c0b0a0908, LocalOffset: 0x1716151413121110, Length: 0x1b1a1918}
	got = bytes.Repeat([]byte{0xee}, 32)
	p.Encode(got)
	if want := append(seq(0, 28), 0, 0, 0, 0); !bytes.Equal(got, want) {
		t.Errorf("a piece is\n% x, want\n% x", got, want)
	}
	r := slots.Result{Cookie: 0x0706050403020100, Status: 0x0b0a0908, Value: 0x1716151413121110}
	r.Encode(got)
	want = append(append(seq(0, 12), 0, 0, 0, 0), append(seq(16, 8), make([]byte, 8)...)...)
	if !bytes.Equal(got, want) {
		t.Errorf("a result is\n% x, want\n% x", got, want)
	}
	ref := slots.Ref{Region: 0x0706050403020100, Rights: 0x0b0a0908, Offset: 0x1716151413121110, Length: 0x1f1e1d1c1b1a1918}
	ref.Encode(got)
	want = append(append(seq(0, 12), 0, 0, 0, 0), seq(16, 16)...)
	if !bytes.Equal(got, want) {
		t.Errorf("a reference is\n% x, want\n% x", got, want)
	}
	if id := slots.MakeRegionID(0x03020100, 0x07060504); id != ref.Region || id.Index() != 0x03020100 || id.Generation() != 0x07060504 {
		t.Errorf("region id %#x", id)
	}
	for i, text := range []string{"ok", "not permitted", "out of bounds", "misaligned", "expired", "connection lost", "invalid operation", "memory could not be registered", "not supported", "status 9"} {
		if got := slots.OpStatus(i).String(); got != text {
			t.Errorf("status %d is %q", i, got)
		}
	}
	if slots.RightWrite != 1 || slots.RightRead != 2 || slots.RightAtomic != 4 || slots.OpWrite != 1 || slots.OpWriteList != 5 {
		t.Error("rights or kinds")
	}
}
