package randomfill

import (
	"math/rand/v2"

	"github.com/rdmad/rdmad/internal/perf"
)

const (
	// Regions is how many regions a client has.
	Regions = 2
	// MaxPages bounds the pages that a request names in each region, and so its size.
	MaxPages = 1 << 16
	// MaxRegion bounds the size of a region, in bytes.
	MaxRegion = perf.MaxBuffer / 4
)

// Layout is how a client's regions are divided, and how many of their pages are filled.
type Layout struct {
	// PageSize is the size of a page in bytes. Page i begins at byte i*PageSize of its region.
	PageSize int `json:"page_size"`
	// Pages is how many pages of each region a request fills, all of them different.
	Pages int `json:"pages"`
	// Region is the size of each region in bytes. What is left behind its last whole page
	// belongs to no page.
	Region int `json:"region"`
}

// Check returns an *perf.InputError for a layout that makes no sense.
func (l Layout) Check() error {
	switch {
	case l.Region < 1 || l.Region > MaxRegion:
		return perf.Inputf("regions of %d bytes: want 1 to %d (--region-size)", l.Region, MaxRegion)
	case l.PageSize < 1 || l.PageSize > l.Region:
		return perf.Inputf("pages of %d bytes in regions of %d: want 1 to %d (--size, --region-size)", l.PageSize, l.Region, l.Region)
	case l.Pages < 1 || l.Pages > MaxPages:
		return perf.Inputf("%d pages of each region: want 1 to %d (--pages)", l.Pages, MaxPages)
	case l.Pages > l.Total():
		return perf.Inputf("%d pages of %d bytes in regions of %d bytes, which have %d (--pages, --size, --region-size)",
			l.Pages, l.PageSize, l.Region, l.Total())
	}
	return nil
}

// Total returns how many whole pages a region has.
func (l Layout) Total() int { return l.Region / l.PageSize }

// Lists are the pages to fill, a list for each region. Their order is that in which the random
// bytes are handed out.
type Lists [Regions][]uint32

// CheckLists returns an *perf.InputError for lists that do not fit the layout, which must be
// a good one: of another length, with a page that the region does not have, or with the same
// page twice.
func (l Layout) CheckLists(lists Lists) error {
	for r, list := range lists {
		if len(list) != l.Pages {
			return perf.Inputf("region %d: a list of %d pages, want %d (--index-%d, --pages)", r, len(list), l.Pages, r)
		}
		at := make(map[uint32]int, len(list))
		for i, page := range list {
			if uint64(page) >= uint64(l.Total()) {
				return perf.Inputf("region %d: page %d is out of range: the region has pages 0 to %d (--index-%d)", r, page, l.Total()-1, r)
			}
			if first, twice := at[page]; twice {
				return perf.Inputf("region %d: page %d is in the list twice, at %d and %d (--index-%d)", r, page, first, i, r)
			}
			at[page] = i
		}
	}
	return nil
}

// Draw chooses the pages of a round at random: the same for the same seed and round.
func (l Layout) Draw(seed, round uint64) Lists {
	r := rand.New(rand.NewPCG(seed, round))
	var lists Lists
	for i := range lists {
		lists[i] = sample(r, l.Total(), l.Pages)
	}
	return lists
}

// sample returns n different numbers below total, in random order (Floyd's algorithm, which
// needs no list of all of them).
func sample(r *rand.Rand, total, n int) []uint32 {
	list := make([]uint32, 0, n)
	taken := make(map[uint32]bool, n)
	for top := total - n; top < total; top++ {
		page := uint32(r.IntN(top + 1))
		if taken[page] {
			page = uint32(top)
		}
		taken[page] = true
		list = append(list, page)
	}
	r.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
