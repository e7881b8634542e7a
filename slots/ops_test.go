package slots_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

func FuzzRef(f *testing.F) {
	var b [32]byte
	f.Add(b[:], uint64(4096))
	(&slots.Ref{Region: 5, Rights: slots.RightWrite, Offset: 4000, Length: 96}).Encode(b[:])
	f.Add(bytes.Clone(b[:]), uint64(4096))
	(&slots.Ref{Region: 5, Rights: slots.AllRights, Offset: 1 << 63, Length: 1 << 63}).Encode(b[:])
	f.Add(bytes.Clone(b[:]), uint64(4096))
	f.Fuzz(func(t *testing.T, in []byte, size uint64) {
		if len(in) < 32 {
			return
		}
		in = in[:32]
		var r slots.Ref
		if !r.Decode(in) {
			return
		}
		if r.Rights == 0 || r.Rights > slots.AllRights || r.Region == 0 || r.Offset+r.Length < r.Offset {
			t.Errorf("accepted %+v", r)
		}
		if slots.Inside(r.Offset, r.Length, size) != (r.Offset+r.Length <= size) {
			t.Errorf("%+v inside %d bytes", r, size)
		}
		out := make([]byte, 32)
		r.Encode(out)
		if !bytes.Equal(in, out) {
			t.Errorf("% x became % x", in, out)
		}
	})
}

func FuzzOp(f *testing.F) {
	var b [64]byte
	f.Add(b[:])
	for kind := slots.OpWrite; kind <= slots.OpWriteList; kind++ {
		(&slots.Op{Kind: kind, Ref: 3, Lane: 7, Slot: 9, Ticket: 11, Offset: 13, Length: 15, Local: 17, LocalOffset: 19, Cookie: 21, Compare: 23, Swap: 25}).Encode(b[:])
		f.Add(bytes.Clone(b[:]))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 64 {
			return
		}
		var o slots.Op
		ok := o.Decode(in)
		if ok != (in[0] >= 1 && in[0] <= 5) {
			t.Fatalf("kind %d: %v", in[0], ok)
		}
		out := make([]byte, 64)
		o.Encode(out)
		if !bytes.Equal(in[:56], out[:56]) {
			t.Errorf("% x became % x", in, out)
		}
	})
}

func TestInside(t *testing.T) {
	const most = ^uint64(0)
	for _, tt := range []struct {
		off, n, size uint64
		want         bool
	}{
		{0, 0, 0, true}, {0, 8, 8, true}, {8, 0, 8, true}, {1, 8, 8, false}, {9, 0, 8, false},
		{most, 1, 8, false}, {1, most, 8, false}, {most, most, most, false}, {0, most, most, true},
	} {
		if slots.Inside(tt.off, tt.n, tt.size) != tt.want {
			t.Errorf("%+v", tt)
		}
	}
}

// Both halves work over many rounds of the ring, with both sides at work at the
// same time.
func TestOpRing(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	mine, daemon := slots.NewOpRing(mem), slots.NewOpRing(mem)
	const total = 20 * slots.OpEntries
	var over sync.WaitGroup
	over.Go(func() {
		var o slots.Op
		var open []uint64
		rng := rand.New(rand.NewPCG(1, 2))
		for done := 0; done < total; {
			for len(open) < daemon.Room() {
				ok, more := daemon.Next(&o)
				if !more {
					break
				}
				if !ok {
					t.Error("an operation is damaged")
				}
				open = append(open, o.Cookie)
			}
			for range rng.IntN(len(open) + 1) {
				if !daemon.Complete(&slots.Result{Cookie: open[0], Value: ^open[0]}) {
					t.Error("no room for a result")
				}
				open = open[1:]
				done++
			}
			daemon.Wake()
			shm.Yield()
		}
	})
	var r slots.Result
	sent, taken := uint64(0), uint64(0)
	for taken < total {
		for sent < total && sent-taken < slots.OpEntries {
			if !mine.Submit(&slots.Op{Kind: slots.OpRead, Cookie: sent}) {
				t.Fatal("no room for an operation")
			}
			sent++
		}
		bell := mine.PrepareSleep()
		if mine.Empty() {
			shm.FutexWait(mine.Bell(), bell, 50*time.Millisecond)
		}
		mine.CancelSleep()
		for mine.Take(&r) {
			if r.Cookie != taken || r.Value != ^taken {
				t.Fatalf("result %+v, want %d", r, taken)
			}
			taken++
		}
	}
	over.Wait()
}

// Positions from nowhere are an empty or a full ring.
func TestOpRingDistrust(t *testing.T) {
	for _, wild := range []uint64{slots.OpEntries + 1, 1 << 40, ^uint64(0)} {
		mem := shm.AlignedBytes(slots.WorkerSegmentSize)
		mine, daemon := slots.NewOpRing(mem), slots.NewOpRing(mem)
		shm.Uint64At(mem, 73728).Store(wild)
		var o slots.Op
		if _, more := daemon.Next(&o); more {
			t.Errorf("tail %d: an operation", wild)
		}
		shm.Uint64At(mem, 74112).Store(wild)
		if daemon.Room() != 0 && wild != ^uint64(0) || daemon.Room() > slots.OpEntries {
			t.Errorf("head %d: room for %d results", wild, daemon.Room())
		}
		shm.Uint64At(mem, 73984).Store(wild)
		var r slots.Result
		if mine.Take(&r) || !mine.Empty() {
			t.Errorf("tail %d: a result", wild)
		}
		shm.Uint64At(mem, 73856).Store(wild)
		if mine.Submit(&o) && wild != ^uint64(0) {
			t.Errorf("head %d: room for an operation", wild)
		}
	}
}
