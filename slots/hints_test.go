package slots_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// ends returns the two ends of a hint ring and its memory.
func ends() (producer, consumer *slots.HintRing, mem []byte) {
	mem = shm.AlignedBytes(slots.WorkerSegmentSize)
	return &slots.NewWorkerRings(mem).Down, &slots.NewWorkerRings(mem).Down, mem
}

func TestHintBits(t *testing.T) {
	h := slots.MakeHint(0xabc, 0x123456, 0xff_ff_fedcba)
	if uint64(h) != 0x0abc_123456_fedcba || uint64(h.WithOrder()) != 0x8abc_123456_fedcba {
		t.Errorf("hints are %#x and %#x", uint64(h), uint64(h.WithOrder()))
	}
	if h.Ordered() || !h.WithOrder().Ordered() || h.WithOrder().Lane() != 0xabc || slots.Hint(1<<64-1).Lane() != slots.MaxLanes-1 {
		t.Errorf("order or lane of %#x", uint64(h))
	}
	if h.Lane() != 0xabc || h.Index() != 0x123456 || !h.TicketIs(0x1_fedcba) || h.TicketIs(0xfedcbb) {
		t.Errorf("fields of %#x", uint64(h))
	}
	if slots.MakeHint(0, 1<<24, 0) != 0 {
		t.Error("an index that is too large is not cut off")
	}
}

func TestHintRingMatchesAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c, _ := ends()
		var queue []slots.Hint
		next := slots.Hint(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				// The consumer says how far it is every 64 hints only.
				for range rapid.SampledFrom([]int{1, 3, 2000, 4096, 5000}).Draw(t, "n") {
					next++
					ok := p.Push(next)
					if ok && len(queue) == slots.HintEntries || !ok && len(queue) < slots.HintEntries-63 {
						t.Fatalf("push into %d: %v", len(queue), ok)
					} else if ok {
						queue = append(queue, next)
					}
				}
			},
			"pop": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 2, 2000, 4096}).Draw(t, "n") {
					h, ok := c.Pop()
					if ok != (len(queue) > 0) || ok && h != queue[0] {
						t.Fatalf("popped %d, %v from %d", h, ok, len(queue))
					}
					if ok {
						queue = queue[1:]
					}
				}
			},
			"": func(t *rapid.T) {
				if c.Empty() != (len(queue) == 0) || c.Len() != len(queue) || p.Backlog() < len(queue) || p.Backlog() > len(queue)+63 {
					t.Fatalf("empty %v, backlog %d, want %d", c.Empty(), p.Backlog(), len(queue))
				}
			},
		})
	})
}

// Whatever the other side writes, this side neither panics nor loops: one round
// of pushes or pops is bounded, and Empty says what Pop does.
func TestHintRingHostile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, c, mem := ends()
		position := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 10000), rapid.Uint64Range(1<<64-10000, 1<<64-1))
		t.Repeat(map[string]func(*rapid.T){
			"hostile head": func(t *rapid.T) { shm.Uint64At(mem, 4096+128).Store(position.Draw(t, "head")) },
			"hostile tail": func(t *rapid.T) { shm.Uint64At(mem, 4096).Store(position.Draw(t, "tail")) },
			"push": func(t *rapid.T) {
				for n := 0; p.Push(1); n++ {
					if n > 2*slots.HintEntries {
						t.Fatal("pushes without bound")
					}
				}
			},
			"push one": func(*rapid.T) { p.Push(2) },
			"pop": func(t *rapid.T) {
				n := 0
				for {
					empty := c.Empty()
					_, ok := c.Pop()
					if ok == empty {
						t.Fatalf("Empty says %v, Pop says %v", empty, ok)
					}
					if !ok {
						break
					}
					if n++; n > 2*slots.HintEntries {
						t.Fatal("pops without bound")
					}
				}
			},
			"": func(t *rapid.T) {
				if b := p.Backlog(); b < 0 || b > slots.HintEntries {
					t.Fatalf("backlog %d", b)
				}
			},
		})
	})
}

func TestHintRingSleep(t *testing.T) {
	p, c, mem := ends()
	if p.Wake() {
		t.Error("woke a consumer that is awake")
	}
	bell := c.PrepareSleep()
	if !p.Wake() || c.Bell().Load() == bell || p.Wake() {
		t.Error("a sleeping consumer is woken once")
	}
	shm.FutexWait(c.Bell(), bell, time.Minute) // the bell has moved: returns at once
	c.PrepareSleep()
	c.CancelSleep()
	if p.Wake() {
		t.Error("woke a consumer that gave up to sleep")
	}
	shm.Uint32At(mem, 4096+256).Store(99) // not a value of the protocol
	if p.Wake() {
		t.Error("woke on a wrong value")
	}
}

// A parked consumer is woken by a page, one that sleeps by the bell, and Ring wakes both.
func TestHintRingPark(t *testing.T) {
	p, c, _ := ends()
	pager, reader, err := shm.NewPager()
	if err != nil {
		t.Fatal(err)
	}
	defer pager.Close()
	pages, err := shm.OpenPages(reader)
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	bell := c.PreparePark()
	if !p.Wake() || c.Bell().Load() == bell || p.Wake() {
		t.Error("without a pager a parked consumer is woken once, too")
	}
	p.SetPager(pager)
	paged := func() bool {
		var b [2]byte
		n, err := shm.ReadFD(reader, b[:])
		return n == 1 && err == nil
	}
	c.PrepareSleep()
	if !p.Wake() || paged() {
		t.Error("a sleeping consumer is woken by the bell")
	}
	bell = c.PreparePark()
	if !p.Wake() || c.Bell().Load() == bell || !paged() || p.Wake() || paged() {
		t.Error("a parked consumer is paged once")
	}
	c.PreparePark()
	c.CancelSleep()
	if p.Wake() || paged() {
		t.Error("paged a consumer that gave up to park")
	}
	bell = c.PreparePark()
	if p.Ring(); c.Bell().Load() == bell || !paged() {
		t.Error("a ring wakes a parked consumer, too")
	}
}

// A producer and a consumer that sleeps whenever it can: every hint arrives,
// in order, and no wake-up is lost (the sleeps are far longer than the limit).
func TestHintRingConcurrent(t *testing.T) {
	p, c, _ := ends()
	const n = 200_000
	guard := time.AfterFunc(4*time.Minute, func() { panic("a wake-up was lost") })
	defer guard.Stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			for !p.Push(slots.Hint(i)) {
				p.Wake()
				// Full: let the consumer run.
				shm.FutexWait(p.Bell(), p.Bell().Load(), 50*time.Microsecond)
			}
			if i%7 == 0 {
				p.Wake()
			}
		}
		p.Wake()
	})
	for want := slots.Hint(0); want < n; {
		h, ok := c.Pop()
		if ok {
			if h != want {
				t.Fatalf("popped %d, want %d", h, want)
			}
			want++
			continue
		}
		bell := c.PrepareSleep()
		if c.Empty() {
			shm.FutexWait(c.Bell(), bell, 5*time.Minute)
		}
		c.CancelSleep()
	}
	wg.Wait()
}
