package randomfill

import (
	"bytes"
	"errors"
	"testing"

	"gonum.org/v1/gonum/mathext/prng"
	"pgregory.net/rapid"
)

// The generator is the published one: these are the numbers of mt19937-64.out.txt, and the
// 10000th of std::mt19937_64 that the C++ standard demands.
func TestGenerator(t *testing.T) {
	g := prng.NewMT19937_64()
	g.SeedFromKeys([]uint64{0x12345, 0x23456, 0x34567, 0x45678})
	for i, want := range []uint64{7266447313870364031, 4946485549665804864, 16945909448695747420, 16394063075524226720, 4873882236456199058} {
		if got := g.Uint64(); got != want {
			t.Errorf("output %d is %d, want %d", i, got, want)
		}
	}
	g.Seed(5489)
	for range 9999 {
		g.Uint64()
	}
	if got := g.Uint64(); got != 9981545732273789042 {
		t.Errorf("output 10000 of seed 5489 is %d", got)
	}
}

// A stream hands out the same bytes whatever the pieces in which it is read.
func TestStreamInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, region := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, Regions-1).Draw(t, "region")
		pieces := rapid.SliceOfN(rapid.IntRange(0, 40), 1, 30).Draw(t, "pieces")
		var all []byte
		s := newStream(seed, region)
		for _, n := range pieces {
			p := make([]byte, n)
			s.fill(p)
			all = append(all, p...)
		}
		whole := make([]byte, len(all))
		newStream(seed, region).fill(whole)
		if !bytes.Equal(all, whole) {
			t.Fatalf("%x in pieces, %x at once", all, whole)
		}
	})
	var first [8]byte
	newStream(5488, 1).fill(first[:])
	// 14514284786278117030 is the first output of seed 5489.
	if first != [8]byte{0xa6, 0xae, 0xf6, 0xf6, 0x1c, 0x19, 0x6d, 0xc9} {
		t.Errorf("the second region begins with %x", first)
	}
}

// filled is a region as a good server leaves it.
func filled(l Layout, region int, list []uint32, seed uint64, back *background) []byte {
	memory := make([]byte, l.Region)
	back.fill(memory)
	s := newStream(seed, region)
	for _, page := range list {
		s.fill(memory[int(page)*l.PageSize : (int(page)+1)*l.PageSize])
	}
	return memory
}

func drawLayout(t *rapid.T) Layout {
	l := Layout{PageSize: rapid.IntRange(1, 300).Draw(t, "page size")}
	total := rapid.IntRange(1, 60).Draw(t, "total")
	l.Region = total*l.PageSize + rapid.IntRange(0, l.PageSize-1).Draw(t, "rest")
	l.Pages = rapid.IntRange(1, total).Draw(t, "pages")
	return l
}

// What a good server writes passes, and any byte that is another does not, wherever it is.
func TestVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		seed, round := rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "round")
		region := rapid.IntRange(0, Regions-1).Draw(t, "region")
		list := l.Draw(seed, round)[region]
		back := newBackground(seed, round)
		memory := filled(l, region, list, seed, back)
		if err := l.verify(region, memory, list, seed, back); err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, l.Region-1).Draw(t, "byte")
		memory[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		err := l.verify(region, memory, list, seed, back)
		var m *MismatchError
		if !errors.As(err, &m) {
			t.Fatalf("byte %d of %+v was changed: %v", at, l, err)
		}
		page := -1
		for _, p := range list {
			if int(p) == at/l.PageSize {
				page = int(p)
			}
		}
		if m.Offset != at || m.Region != region || m.Page != page || m.Got != memory[at] || m.Want == m.Got {
			t.Fatalf("byte %d of page %d was changed, it says %+v", at, page, m)
		}
	})
}

// Pages larger than what is compared at once are compared to the end.
func TestVerifyLargePages(t *testing.T) {
	l := Layout{PageSize: 2*chunk + 5, Region: 5*(2*chunk+5) + 3, Pages: 2}
	lists := l.Draw(1, 0)
	back := newBackground(1, 0)
	memory := filled(l, 1, lists[1], 1, back)
	if err := l.verify(1, memory, lists[1], 1, back); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, chunk - 1, chunk, 2 * chunk, 2*chunk + 4, 2*chunk + 5, len(memory) - 4, len(memory) - 1} {
		memory[at] ^= 1
		var m *MismatchError
		if err := l.verify(1, memory, lists[1], 1, back); !errors.As(err, &m) || m.Offset != at {
			t.Errorf("byte %d was changed: %v", at, err)
		}
		memory[at] ^= 1
	}
}

// The same pages with the bytes of the other region, or in another order, are noticed.
func TestVerifyMixedUp(t *testing.T) {
	l := Layout{PageSize: 16, Region: 160, Pages: 3}
	back := newBackground(9, 0)
	list := []uint32{7, 1, 4}
	if err := l.verify(1, filled(l, 0, list, 9, back), list, 9, back); err == nil {
		t.Error("bytes of the other region pass")
	}
	if err := l.verify(0, filled(l, 0, []uint32{1, 7, 4}, 9, back), list, 9, back); err == nil {
		t.Error("pages in another order pass")
	}
}
