package slots_test

import (
	"os"
	"testing"

	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		os.Exit(stressWorkerMain())
	}
	leaktest.Main(m)
}

// small and pages are the geometries of the default ring classes.
var (
	small = slots.Geometry{SlotSize: 128, Slots: 4096, MaxRun: 32}
	pages = slots.Geometry{SlotSize: 4096, Slots: 2048, MaxRun: 256}
)

// newRing makes a ring in ordinary memory.
func newRing(t testing.TB, g slots.Geometry) (*slots.Ring, []byte) {
	t.Helper()
	mem := shm.AlignedBytes(g.SegmentSize())
	r, err := slots.NewRing(mem, g)
	if err != nil {
		t.Fatal(err)
	}
	return r, mem
}

// setWord writes a slot word as any process of the domain could.
func setWord(mem []byte, i int, w slots.Word) {
	shm.Uint64At(mem, 8192+8*i).Store(uint64(w))
}

// setTickets makes every slot free with the given ticket.
func setTickets(mem []byte, g slots.Geometry, ticket uint64) {
	for i := range g.Slots {
		setWord(mem, i, slots.MakeWord(slots.Free, 0, 0, ticket))
	}
}

// freeSlots counts the free slots.
func freeSlots(r *slots.Ring) (n int) {
	for i := range r.Geometry().Slots {
		if w := r.Word(i); w.State() == slots.Free {
			n++
		}
	}
	return n
}

// dump prints the words that are not free.
func dump(t testing.TB, r *slots.Ring) {
	t.Helper()
	left := 40
	for i := range r.Geometry().Slots {
		if w := r.Word(i); w.State() != slots.Free && left > 0 {
			t.Logf("slot %d: %v", i, w)
			left--
		}
	}
}
