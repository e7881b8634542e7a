package main

import (
	"math/bits"
	"time"
)

// phase is what the harness does, for figures that compare.
type phase uint64

const (
	// phaseNone is not measured.
	phaseNone phase = iota
	// phaseCalm and phaseHostile take turns while a hostile worker is there.
	phaseCalm
	phaseHostile
	// phaseNeighbours is the third: honest workers that are as busy.
	phaseNeighbours
	// phasePeerCalm and phaseHostilePeer do so for a hostile peer.
	phasePeerCalm
	phaseHostilePeer
	// phaseRunning and phaseStopped do so for a worker that is stopped.
	phaseRunning
	phaseStopped
	phases
)

// Times are counted in buckets: eight for each power of two of nanoseconds.
const (
	bucketBits = 3
	buckets    = 40 << bucketBits
)

// bucketOf returns the bucket of a time.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 1))
	e := bits.Len64(n) - 1
	if e < bucketBits {
		return int(n)
	}
	return min((e-bucketBits+1)<<bucketBits+int(n>>(e-bucketBits)&(1<<bucketBits-1)), buckets-1)
}

// bucketEnd returns the least time that is above a bucket.
func bucketEnd(b int) time.Duration {
	b++
	if b < 2<<bucketBits {
		return time.Duration(b)
	}
	e := b>>bucketBits - 1
	return time.Duration((1<<bucketBits + b&(1<<bucketBits-1))) << e
}

// openSeen is set in boardOpen when a turn has ended while the call was open: it has been counted.
const openSeen = 1 << 63

// opened notes that the witness has begun a call.
func (b *board) opened(began int64) { b.words[boardOpen].Store(uint64(began)) }

// closed notes that the call has ended, and reports whether it is still to be counted.
func (b *board) closed(began int64) bool {
	return b.words[boardOpen].Swap(0) == uint64(began)
}

// waiting returns when the call was begun that the witness waits for, and has it counted by who asks; 0 if there is none.
func (b *board) waiting() int64 {
	w := &b.words[boardOpen]
	began := w.Load()
	if began == 0 || began&openSeen == 0 && !w.CompareAndSwap(began, began|openSeen) {
		return 0
	}
	return int64(began &^ openSeen)
}

// stint is a phase of some time.
type stint struct {
	phase  phase
	began  int64
	before *counts
}

// beginTurn begins a turn at a time of the ledger.
func (r *run) beginTurn(p phase, t int64) stint {
	x := stint{p, t, r.board.counts(p)}
	r.board.words[boardPhase].Store(uint64(p))
	return x
}

// endTurn ends a turn. A call that is open then counts with what the turn has had of it: the longest ones, which are what a p99
// is about, are those that are likely to be. A turn counts with however few calls: few is what it is when they are slow.
func (r *run) endTurn(x stint, t int64) {
	r.board.words[boardPhase].Store(uint64(phaseNone))
	if began := r.board.waiting(); began > 0 && began < t {
		r.board.called(x.phase, time.Duration(t-max(began, x.began)))
	}
	r.phaseTime[x.phase] += time.Duration(t - x.began)
	if calls, p99 := r.board.counts(x.phase).since(x.before).latency(0.99); calls > 0 {
		r.p99s[x.phase] = append(r.p99s[x.phase], p99)
	}
}

// during is a turn of some time.
func (r *run) during(p phase, d time.Duration) {
	x := r.beginTurn(p, now())
	r.sleep(d)
	r.endTurn(x, now())
}

// called counts a call of the witness.
func (b *board) called(p phase, d time.Duration) {
	if p < phases {
		b.add(boardLatency + int(p)*buckets + bucketOf(d))
	}
}

// counts are calls by the bucket of their time.
type counts [buckets]uint64

// counts returns the calls of a phase.
func (b *board) counts(p phase) *counts {
	var c counts
	for i := range c {
		c[i] = b.get(boardLatency + int(p)*buckets + i)
	}
	return &c
}

// since returns the calls that have been added to others.
func (c *counts) since(before *counts) *counts {
	var d counts
	for i := range d {
		d[i] = c[i] - before[i]
	}
	return &d
}

// latency returns how many calls there were, and below which time the share q of them was.
func (c *counts) latency(q float64) (calls uint64, at time.Duration) {
	for _, n := range c {
		calls += n
	}
	left := uint64(float64(calls) * (1 - q))
	var above uint64
	for i := buckets - 1; i >= 0; i-- {
		if above += c[i]; above > left {
			return calls, bucketEnd(i)
		}
	}
	return calls, 0
}

// latency returns how many calls a phase had, and below which time the share q of them
// was.
func (b *board) latency(p phase, q float64) (calls uint64, at time.Duration) {
	return b.counts(p).latency(q)
}
