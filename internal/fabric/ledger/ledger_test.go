package ledger

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/internal/poller"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// seeds runs a test with generators of several seeds, and names the seed that fails.
func seeds(t *testing.T, test func(t *testing.T, r *rand.Rand)) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { test(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

// A ring is a queue: what a slice says of it, it says, wherever its positions are, and it finds each
// entry, and no other, by as many low bits of the position as there are.
func TestRingIsAQueue(t *testing.T) {
	seeds(t, func(t *testing.T, r *rand.Rand) {
		n := 1 + r.IntN(40)
		ring := NewRing[int](n)
		if c := ring.Cap(); c < n || c >= 2*n && c > 1 || c&(c-1) != 0 {
			t.Fatalf("%d entries fit a ring for %d", c, n)
		}
		// Some begin shortly before positions wrap around.
		ring.Head = r.Uint32N(2) * (math.MaxUint32 - r.Uint32N(100))
		ring.Tail = ring.Head
		var model []int
		for step := range 500 {
			if r.IntN(2) == 0 && len(model) < n {
				*ring.At(ring.Tail) = step
				ring.Tail++
				model = append(model, step)
			} else if len(model) > 0 {
				if got := *ring.At(ring.Head); got != model[0] {
					t.Fatalf("step %d: the first one is %d, want %d", step, got, model[0])
				}
				ring.Head++
				model = model[1:]
			}
			if ring.Len() != len(model) {
				t.Fatalf("step %d: %d entries, want %d", step, ring.Len(), len(model))
			}
			used := map[uint32]int{}
			for i, want := range model {
				pos := ring.Head + uint32(i)
				if got := *ring.At(pos); got != want {
					t.Fatalf("step %d: entry %d is %d, want %d", step, i, got, want)
				}
				used[ring.Index(pos)] = i
				// What is above the mask says nothing.
				const mask = 1<<31 - 1
				if at, ok := ring.Find(pos^1<<31, mask); !ok || at != pos {
					t.Fatalf("step %d: %#x is found at %#x, %v", step, pos, at, ok)
				}
			}
			for index := range uint32(ring.Cap()) {
				i, there := used[index]
				if pos, ok := ring.FindIndex(index); ok != there || ok && pos != ring.Head+uint32(i) {
					t.Fatalf("step %d: index %d is found at %#x, %v", step, index, pos, ok)
				}
			}
			for _, pos := range []uint32{ring.Head - 1, ring.Tail, ring.Tail + uint32(ring.Cap())} {
				if at, ok := ring.Find(pos, 1<<31-1); ok {
					t.Fatalf("step %d: %#x, which is not in the ring, is found at %#x", step, pos, at)
				}
			}
		}
	})
}

func TestSmallestRing(t *testing.T) {
	for _, n := range []int{0, 1} {
		if r := NewRing[byte](n); r.Cap() != 1 || r.Len() != 0 {
			t.Errorf("a ring for %d: %d of %d", n, r.Len(), r.Cap())
		}
	}
}

// Whatever the room is, everything that is emitted comes out once, in order, and as soon as there is
// room.
func TestDelivery(t *testing.T) {
	seeds(t, func(t *testing.T, r *rand.Rand) {
		var d Delivery
		var next, emitted uint64
		emit := func(n int) {
			for range n {
				d.Emit(fabric.Completion{ID: emitted})
				emitted++
			}
		}
		for range 200 {
			out := make([]fabric.Completion, 1+r.IntN(8))
			pending := emitted - next
			d.Begin(out)
			if want := max(0, len(out)-int(pending)); d.Room() != want {
				t.Fatalf("room for %d of %d after %d that waited", d.Room(), len(out), pending)
			}
			emit(r.IntN(12))
			want := min(uint64(len(out)), emitted-next)
			n := d.End()
			if uint64(n) != want {
				t.Fatalf("%d come out, want %d", n, want)
			}
			for _, c := range out[:n] {
				if c.ID != next {
					t.Fatalf("%d comes after %d", c.ID, int64(next)-1)
				}
				next++
			}
			emit(r.IntN(2)) // between two Polls
			if d.Waiting() != (next < emitted) || d.Room() != 0 {
				t.Fatalf("%d wait, says %v, room for %d", emitted-next, d.Waiting(), d.Room())
			}
		}
	})
}

// What is in use costs no memory, once it has been as long as it gets.
func TestNoAllocations(t *testing.T) {
	var d Delivery
	var news News[int]
	ring := NewRing[int](4)
	members := NewMembers[int]()
	if err := members.Admit(7, func(uint32) {}); err != nil {
		t.Fatal(err)
	}
	out := make([]fabric.Completion, 4)
	n := testing.AllocsPerRun(100, func() {
		d.Begin(out)
		for range 6 {
			d.Emit(fabric.Completion{})
		}
		d.End()
		d.Begin(out)
		d.End()
		*ring.At(ring.Tail) = 1
		ring.Tail++
		if _, ok := ring.FindIndex(ring.Index(ring.Head)); ok {
			ring.Head++
		}
		if len(members.All()) != 1 || news.Some() || news.Take() != nil {
			t.Error("something has come")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Members are found by the number they were given until they are forgotten, by a reader who takes no
// lock while others come and go.
func TestMembers(t *testing.T) {
	m := NewMembers[int]()
	var wg sync.WaitGroup
	const workers, rounds = 4, 200
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				me := w*rounds + i
				var serial uint32
				if err := m.Admit(me, func(s uint32) { serial = s }); err != nil {
					t.Error(err)
					return
				}
				if got, ok := m.All()[serial]; !ok || got != me {
					t.Errorf("%d is %d, %v", me, got, ok)
				}
				if i%2 == 0 {
					m.Forget(serial)
					if _, ok := m.All()[serial]; ok {
						t.Errorf("%d is still there", me)
					}
				}
			}
		})
	}
	wg.Wait()
	all := m.All()
	seen := map[int]bool{}
	for _, who := range all {
		seen[who] = true
	}
	if want := workers * rounds / 2; len(all) != want || len(seen) != want {
		t.Errorf("%d members, %d different ones, want %d", len(all), len(seen), want)
	}
	m.Close()
	if err := m.Admit(-1, func(uint32) { t.Error("it was named") }); !errors.Is(err, fabric.ErrClosed) {
		t.Error(err)
	}
	if len(m.All()) != len(all) {
		t.Error("Close has sent members away")
	}
}

// A number that wraps around is given to nobody while somebody has it.
func TestSerialsWrap(t *testing.T) {
	m := NewMembers[string]()
	var serials []uint32
	admit := func(who string) {
		if err := m.Admit(who, func(s uint32) { serials = append(serials, s) }); err != nil {
			t.Fatal(err)
		}
	}
	admit("first")
	m.serial = math.MaxUint32 - 1
	for _, who := range []string{"last", "zero", "next"} {
		admit(who)
	}
	if want := []uint32{1, math.MaxUint32, 0, 2}; !slices.Equal(serials, want) {
		t.Errorf("%d, want %d", serials, want)
	}
}

// News come once and in order, and wake who sleeps; after Close there are none.
func TestNews(t *testing.T) {
	p, err := poller.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	var s News[int]
	if err := s.Watch(p); err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 100
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				s.Put(w*each + i)
			}
		})
	}
	last := [writers]int{}
	for got := 0; got < writers*each; {
		if !s.Some() {
			if n, err := p.Wait(time.Minute); n == 0 || err != nil {
				t.Fatalf("%d of %d have come, and then nothing wakes: %v", got, writers*each, err)
			}
			continue
		}
		for _, n := range s.Take() {
			if w, i := n/each, n%each; i != last[w] {
				t.Fatalf("writer %d: %d after %d", w, i, last[w]-1)
			}
			last[n/each]++
			got++
		}
	}
	wg.Wait()
	if s.Some() || s.Take() != nil {
		t.Error("there is more than was put in")
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if s.Put(1); s.Some() {
		t.Error("news after Close")
	}
}

// Check lets through what every provider can carry out, and nothing else.
func TestCheck(t *testing.T) {
	const in, un = true, false
	for _, c := range []struct {
		w       fabric.SendWR
		max     int
		atomics bool
		inline  bool
		err     error
	}{
		{fabric.SendWR{Op: fabric.OpWrite, Local: fabric.Local{Len: 8}}, 8, false, in, nil},
		{fabric.SendWR{Op: fabric.OpWriteImm, Local: fabric.Local{Len: 9}}, 8, false, un, nil},
		{fabric.SendWR{Op: fabric.OpSend, Local: fabric.Local{Len: math.MaxUint32}}, 8, false, un, nil},
		{fabric.SendWR{Op: fabric.OpWriteImm}, 8, false, un, nil},
		{fabric.SendWR{Op: fabric.OpWriteImm, Flags: fabric.FlagInline}, 0, false, un, nil},
		{fabric.SendWR{Op: fabric.OpWrite, Flags: fabric.FlagInline, Local: fabric.Local{Len: 9}}, 8, false, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: fabric.OpWrite, Flags: fabric.FlagInline, Local: fabric.Local{Len: 1}}, 0, false, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: fabric.OpWrite, Flags: fabric.FlagInline, Local: fabric.Local{Len: 1}}, -1, false, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: fabric.OpRead, Local: fabric.Local{Len: 8}}, 8, false, un, nil},
		{fabric.SendWR{Op: fabric.OpRead, Flags: fabric.FlagInline, Local: fabric.Local{Len: 8}}, 8, false, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: fabric.OpFetchAdd, Local: fabric.Local{Len: 8}, RemoteAddr: 16}, 8, true, un, nil},
		{fabric.SendWR{Op: fabric.OpCompareSwap, Local: fabric.Local{Len: 8}, RemoteAddr: 16}, 8, false, un, fabric.ErrNotSupported},
		{fabric.SendWR{Op: fabric.OpCompareSwap, Local: fabric.Local{Len: 4}, RemoteAddr: 16}, 8, true, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: fabric.OpFetchAdd, Local: fabric.Local{Len: 8}, RemoteAddr: 17}, 8, true, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: fabric.OpFetchAdd, Flags: fabric.FlagInline, Local: fabric.Local{Len: 8}}, 8, true, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: 0}, 8, true, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: fabric.OpRecv}, 8, true, un, fabric.ErrInvalid},
		{fabric.SendWR{Op: 200}, 8, true, un, fabric.ErrInvalid},
	} {
		if inline, err := Check(&c.w, c.max, c.atomics); inline != c.inline || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%+v with %d bytes inline, atomics %v: %v, %v", c.w, c.max, c.atomics, inline, err)
		}
	}
}

// No sum wraps around.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		offset uint64
		len    uint32
		size   uint64
		want   bool
	}{
		{0, 0, 0, true}, {0, 1, 0, false}, {0, 8, 8, true}, {1, 8, 8, false}, {8, 0, 8, true}, {9, 0, 8, false},
		{math.MaxUint64 - 3, 8, 8, false}, {math.MaxUint64, math.MaxUint32, math.MaxUint64, false},
		{1, math.MaxUint32, math.MaxUint64, true},
	} {
		if got := Within(&fabric.Local{Offset: c.offset, Len: c.len}, c.size); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
