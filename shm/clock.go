package shm

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Nanotime returns CLOCK_MONOTONIC in nanoseconds: the same clock for every
// process of a node, unlike Go's monotonic readings, whose zero is private.
//
// It is computed from Go's reading, which needs no system call, and the
// distance of the two clocks, which is measured once to within a microsecond
// or so: expect two processes to disagree by that much.
func Nanotime() int64 { return zero.offset + int64(time.Since(zero.start)) }

// never is 146 years: with the time since the start of a node, and the distance of two nodes' clocks,
// it is still a number of nanoseconds.
const never = time.Duration(1 << 62)

// NanotimeOf returns when t is, or was, by Nanotime, without a look at the clock where t has been computed from one
// (time.Now, context.WithTimeout). ok is false for a time that is more than 146 years away: programs write "for ever" as the longest time
// there is.
func NanotimeOf(t time.Time) (at int64, ok bool) {
	if wall := t.Round(0); wall == t { // a date: when that is depends on what the clock says now
		left := time.Until(t)
		return Nanotime() + int64(min(left, never)), left <= never
	}
	since := t.Sub(zero.start)
	return zero.offset + int64(min(since, never)), since <= never
}

var zero = calibrate()

type clockZero struct {
	start  time.Time
	offset int64 // CLOCK_MONOTONIC at start
}

// calibrate reads Go's clock between two readings of the other and keeps the
// closest of a few tries.
func calibrate() (best clockZero) {
	width := int64(math.MaxInt64)
	for range 8 {
		before := monotonic()
		start := time.Now()
		after := monotonic()
		if w := after - before; w < width {
			width, best = w, clockZero{start: start, offset: before + w/2}
		}
	}
	return best
}

func monotonic() int64 {
	var ts unix.Timespec
	// CLOCK_MONOTONIC with a valid pointer cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
