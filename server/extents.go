package server

import "slices"

// extents are ranges of bytes that do not overlap, in order, those that touch as one. They say
// which bytes of a large request have come or are on their way, so that none is taken twice.
type extents []extent

// extent is the bytes from at to end, without that.
type extent struct{ at, end uint64 }

// maxExtents bounds the ranges. Requesters send parts in order and have few under way at a time, so
// there are never many: only nonsense makes more.
const maxExtents = 1024

// add adds a range. It returns false, and adds nothing, if one of its bytes is there already or
// there are too many ranges.
func (x *extents) add(at, end uint64) bool {
	l := *x
	i := l.after(at)
	before, after := i > 0 && l[i-1].end == at, i < len(l) && l[i].at == end
	switch {
	case at >= end:
		return at == end
	case i > 0 && l[i-1].end > at || i < len(l) && l[i].at < end:
		return false
	case before && after:
		l[i-1].end = l[i].end
		*x = slices.Delete(l, i, i+1)
	case before:
		l[i-1].end = end
	case after:
		l[i].at = at
	case len(l) >= maxExtents:
		return false
	default:
		*x = slices.Insert(l, i, extent{at, end})
	}
	return true
}

// drop takes a range out that was added.
func (x *extents) drop(at, end uint64) {
	l := *x
	i := l.after(at) - 1
	if at == end || i < 0 || l[i].end < end {
		return
	}
	first, rest := extent{l[i].at, at}, extent{end, l[i].end}
	switch {
	case first.at == first.end && rest.at == rest.end:
		*x = slices.Delete(l, i, i+1)
	case first.at == first.end:
		l[i] = rest
	case rest.at == rest.end:
		l[i] = first
	default:
		l[i] = first
		*x = slices.Insert(l, i+1, rest)
	}
}

// after returns the index of the first range that begins after at.
func (x extents) after(at uint64) int {
	i, _ := slices.BinarySearchFunc(x, at, func(e extent, at uint64) int {
		if e.at <= at {
			return -1
		}
		return 1
	})
	return i
}
