package slots_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// The numbers in this file are those of docs/layout.md. They are literals on
// purpose: a changed constant must fail here.

func TestLayoutConstants(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{"segment header", shm.HeaderSize, 4096},
		{"message header", slots.HeaderSize, 64},
		{"max owner", slots.MaxOwner, 4095},
		{"max run", slots.MaxRun, 511},
		{"ticket mask", slots.TicketMask, 0xff_ffff_ffff},
		{"max lanes", slots.MaxLanes, 4096},
		{"domain segment", slots.DomainSegmentSize, 8192},
		{"hint entries", slots.HintEntries, 4096},
		{"worker segment", slots.WorkerSegmentSize, 102400},
		{"operations", slots.OpEntries, 256},
		{"operation", slots.OpSize, 64},
		{"result", slots.ResultSize, 32},
		{"piece", slots.PieceSize, 32},
		{"pieces", slots.MaxPieces, 1024},
		{"reference", slots.RefSize, 32},
		{"references", slots.MaxRefs, 8},
		{"largest spill", slots.MaxSpill, 67108864},
		{"spilled answer", slots.SpilledSize(9), 96},
		{"min slot", slots.MinSlotSize, 128},
		{"max slot", slots.MaxSlotSize, 65536},
		{"slot align", slots.SlotAlign, 64},
		{"min slots", slots.MinSlots, 16},
		{"max slots", slots.MaxSlots, 65536},
		{"small lane segment", small.SegmentSize(), 598016},
		{"small slots", small.SlotBytes(), 524288},
		{"small max payload", small.MaxPayload(), 4032},
		{"pages lane segment", pages.SegmentSize(), 8429568},
		{"pages slots", pages.SlotBytes(), 8388608},
		{"pages max payload", pages.MaxPayload(), 1048512},
		{"odd lane segment", slots.Geometry{SlotSize: 192, Slots: 20, MaxRun: 3}.SegmentSize(), 12288 + 3840},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, documented as %d", c.name, c.got, c.want)
		}
	}
	for i, s := range []slots.State{slots.Free, slots.Claim, slots.Follow, slots.Pub, slots.Taken, slots.Ans, slots.Read, slots.Moved} {
		if int(s) != i {
			t.Errorf("requester state %d has value %d", i, s)
		}
	}
	if slots.Recv != 1 || slots.Picked != 2 || slots.Done != 3 {
		t.Error("responder states")
	}
	if slots.KindRequest != 1 || slots.KindOneWay != 2 || slots.KindAnswer != 3 || slots.FlagError != 1 || slots.FlagControl != 2 || slots.FlagRefs != 4 {
		t.Error("kinds or flags")
	}
	if slots.LaneOpen != 0 || slots.LaneDraining != 1 || slots.LaneClosed != 2 {
		t.Error("lane states")
	}
	for i, text := range []string{"ok", "remote error", "no such service", "answer too large", "deadline passed", "not executed", "may have been executed", "invalid request", "region not exported", "status 9"} {
		if got := slots.Status(i).String(); got != text {
			t.Errorf("status %d is %q", i, got)
		}
	}
}

// Each word of a lane segment is where the layout says.
func TestLaneOffsets(t *testing.T) {
	for _, g := range []slots.Geometry{small, pages} {
		r, mem := newRing(t, g)
		answers := map[int]int{4096: 40960, 2048: 24576}[g.Slots]
		body := map[int]int{4096: 73728, 2048: 40960}[g.Slots]

		shm.Uint64At(mem, 4096).Store(5)
		if r.Cursor() != 5 {
			t.Error("cursor is not at 4096")
		}
		shm.Uint32At(mem, 4224).Store(2)
		if r.State() != slots.LaneClosed {
			t.Error("state is not at 4224")
		}
		r.SetShare(slots.Share(0).Next(9).Next(3))
		if shm.Uint32At(mem, 4228).Load() != 0x200003 || r.Share().Slots() != 3 {
			t.Error("share is not at 4228")
		}
		r.FreeBell().Store(7)
		if shm.Uint32At(mem, 4352).Load() != 7 {
			t.Error("free bell is not at 4352")
		}
		r.WaitFree(1)
		if shm.Uint32At(mem, 4480).Load() != 1 {
			t.Error("free waiters are not at 4480")
		}
		shm.Uint64At(mem, 4608).Store(9)
		if pos, ok := r.TakeLate(); !ok || pos != 8 || shm.Uint64At(mem, 4608).Load() != 0 {
			t.Error("late is not at 4608")
		}
		for _, i := range []int{0, 1, g.Slots - 1} {
			shm.Uint64At(mem, 8192+8*i).Store(uint64(i) + 77)
			if r.Word(i) != slots.Word(i+77) {
				t.Errorf("word %d is not at %d", i, 8192+8*i)
			}
			r.Deliver(i, 1, 2, 3)
			if shm.Uint64At(mem, answers+8*i).Load() != 3<<24|2<<12|1<<3|1 {
				t.Errorf("answer word %d is not at %d", i, answers+8*i)
			}
			r.HeaderAt(i)[0] = 0xab
			if mem[body+i*g.SlotSize] != 0xab {
				t.Errorf("slot %d is not at %d", i, body+i*g.SlotSize)
			}
			r.PayloadAt(i, 1)[0] = 0xcd
			if mem[body+i*g.SlotSize+64] != 0xcd || len(r.PayloadAt(i, 1)) != g.SlotSize-64 {
				t.Errorf("payload %d is not at %d", i, body+i*g.SlotSize+64)
			}
		}
		if len(mem) != body+g.Slots*g.SlotSize || &r.Slots()[0] != &mem[body] || len(r.Slots()) != g.SlotBytes() {
			t.Error("slots do not end with the segment")
		}
	}
}

func TestWorkerOffsets(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	mine, daemon := slots.NewWorkerRings(mem), slots.NewWorkerRings(mem)
	for _, c := range []struct {
		name         string
		push, pop    *slots.HintRing
		ctl, entries int
	}{
		{"down", &daemon.Down, &mine.Down, 4096, 8192},
		{"up", &mine.Up, &daemon.Up, 5120, 40960},
	} {
		c.push.Push(slots.MakeHint(1, 2, 3))
		c.push.Push(slots.MakeHint(4, 5, 6))
		c.pop.Pop()
		c.pop.Pop() // the last one: now the head is told
		c.pop.PrepareSleep()
		c.push.Ring()
		if got := shm.Uint64At(mem, c.ctl).Load(); got != 2 {
			t.Errorf("%s: tail is %d", c.name, got)
		}
		if got := shm.Uint64At(mem, c.ctl+128).Load(); got != 2 {
			t.Errorf("%s: head is %d", c.name, got)
		}
		if got := shm.Uint32At(mem, c.ctl+256).Load(); got != 1 {
			t.Errorf("%s: asleep is %d", c.name, got)
		}
		if got := shm.Uint32At(mem, c.ctl+384).Load(); got != 1 {
			t.Errorf("%s: bell is %d", c.name, got)
		}
		if got := shm.Uint64At(mem, c.entries+8).Load(); got != 0x0004_000005_000006 {
			t.Errorf("%s: entry 1 is %#x", c.name, got)
		}
	}
	daemon.SetOverflow()
	if shm.Uint32At(mem, 6144).Load() != 1 || !mine.TakeOverflow() || mine.TakeOverflow() {
		t.Error("overflow is not at 6144")
	}
	if daemon.Departed() {
		t.Error("departed before it was said")
	}
	mine.Depart()
	if shm.Uint32At(mem, 6272).Load() != 1 || !daemon.Departed() {
		t.Error("departed is not at 6272")
	}
}

func TestDomainOffsets(t *testing.T) {
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	b := slots.NewBells(mem)
	b.PrepareSleep()
	b.CancelSleep()
	b.PrepareSleep()
	if shm.Uint64At(mem, 4096).Load() != 5 || shm.Uint64At(mem, 4104).Load() != 5 {
		t.Error("asleep is not at 4096, or sleeps is not at 4104")
	}
	b.CancelSleep()
	if shm.Uint64At(mem, 4096).Load() != 0 || shm.Uint64At(mem, 4104).Load() != 5 {
		t.Error("an agent that is awake is not")
	}
	b.MarkLane(0)
	b.MarkLane(65)
	b.MarkLane(4095)
	if mem[5120] != 1 || mem[5128] != 2 || mem[5120+511] != 0x80 {
		t.Error("lane bits are not at 5120")
	}
	b.MarkWorker(0)
	b.MarkWorker(65)
	b.MarkWorker(4095)
	if mem[5632] != 1 || mem[5640] != 2 || mem[5632+511] != 0x80 {
		t.Error("worker bits are not at 5632")
	}
}

func TestHeaderBytes(t *testing.T) {
	h := slots.Header{
		Ticket: 0x0504030201, Length: 0x0d0c0b0a, Run: 0x1110, Kind: 0x12, Flags: 0x13,
		Method: 0x23222120, Answer: 0x33323130, Deadline: 0x4746454443424140,
		Trace: 0x5756555453525150, Status: 0x63626160, Refs: 0x64, Cookie: 0x7776757473727170,
	}
	got := make([]byte, 64)
	for i := range got {
		got[i] = 0xee
	}
	h.Encode(got)
	want := []byte{
		0x01, 0x02, 0x03, 0x04, 0x05, 0, 0, 0,
		0x0a, 0x0b, 0x0c, 0x0d, 0x10, 0x11, 0x12, 0x13,
		0x20, 0x21, 0x22, 0x23, 0x30, 0x31, 0x32, 0x33,
		0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47,
		0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57,
		0x60, 0x61, 0x62, 0x63, 0x64, 0, 0, 0,
		0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77,
		0, 0, 0, 0, 0, 0, 0, 0,
	}
	if !bytes.Equal(got, want) {
		t.Errorf("encoded\n% x, want\n% x", got, want)
	}
}

func TestGeometryCheck(t *testing.T) {
	for _, g := range []slots.Geometry{small, pages, {128, 16, 1}, {65536, 65536, 511}, {192, 17, 17}} {
		if err := g.Check(); err != nil {
			t.Errorf("%+v: %v", g, err)
		}
	}
	for _, g := range []slots.Geometry{
		{}, {64, 16, 1}, {130, 16, 1}, {65600, 16, 1}, {-128, 16, 1}, {128, 15, 1}, {128, 65537, 1},
		{128, 16, 0}, {128, 16, 17}, {128, 1024, 512}, {128, -16, 1}, {128, 16, -1},
	} {
		if err := g.Check(); !errors.Is(err, slots.ErrGeometry) {
			t.Errorf("%+v: %v", g, err)
		}
		if _, err := slots.NewRing(shm.AlignedBytes(1<<20), g); !errors.Is(err, slots.ErrGeometry) {
			t.Errorf("NewRing(%+v): %v", g, err)
		}
	}
	if _, err := slots.NewRing(shm.AlignedBytes(small.SegmentSize()-1), small); !errors.Is(err, slots.ErrGeometry) {
		t.Errorf("a segment that is too small: %v", err)
	}
	for payload, run := range map[int]int{0: 1, 1: 1, 64: 1, 65: 2, 192: 2, 193: 3, 4032: 32, 4033: 33} {
		if got := small.RunFor(payload); got != run {
			t.Errorf("RunFor(%d) is %d, want %d", payload, got, run)
		}
		if small.Capacity(run) < payload || (run > 1 && small.Capacity(run-1) >= payload) {
			t.Errorf("capacity of %d slots and a payload of %d bytes", run, payload)
		}
	}
}
