package server

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Ranges are what a table of bytes says, and as few as can be.
func TestExtents(t *testing.T) {
	const size = 40
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var x extents
		var have [size]bool
		var added []extent
		for range 100 {
			if k := len(added); k > 0 && r.IntN(3) == 0 {
				i := r.IntN(k)
				x.drop(added[i].at, added[i].end)
				for b := added[i].at; b < added[i].end; b++ {
					have[b] = false
				}
				added = slices.Delete(added, i, i+1)
			} else {
				e := extent{at: r.Uint64N(size)}
				e.end = e.at + r.Uint64N(min(8, size-e.at)+1)
				free := !slices.Contains(have[e.at:e.end], true)
				if got := x.add(e.at, e.end); got != free {
					t.Fatalf("adding %v to %v: %v", e, x, got)
				}
				if free {
					added = append(added, e)
					for b := e.at; b < e.end; b++ {
						have[b] = true
					}
				}
			}
			var want extents
			for b, on := range have {
				switch n := len(want); {
				case !on:
				case b > 0 && have[b-1]:
					want[n-1].end++
				default:
					want = append(want, extent{uint64(b), uint64(b) + 1})
				}
			}
			if !slices.Equal(x, want) {
				t.Fatalf("%v, want %v", x, want)
			}
		}
	}
}

// Parts with gaps between them take no memory without end.
func TestExtentsAreBounded(t *testing.T) {
	var x extents
	n := uint64(0)
	for n < 1<<20 && x.add(2*n, 2*n+1) {
		n++
	}
	if n != maxExtents {
		t.Errorf("%d ranges", n)
	}
	if !x.add(1, 2) || len(x) != maxExtents-1 {
		t.Error("what fills a gap is refused")
	}
}
