package bench

import (
	"bytes"
	"testing"
)

// Every single wrong byte, and every wrong length, must be noticed.
func TestIntactNoticesDamage(t *testing.T) {
	for _, size := range []int{0, 1, 7, 8, 9, 15, 16, 17, 64, 1000, patternSize - 1, patternSize, 2*patternSize + 5} {
		stamp := stampOf(1, uint64(size))
		p := make([]byte, size)
		fill(p, stamp)
		if !intact(p, size, stamp) || !sameEnds(p) {
			t.Fatalf("size %d: own content is not intact", size)
		}
		if intact(p, size+1, stamp) || size > 0 && intact(p[:size-1], size, stamp) {
			t.Errorf("size %d: a wrong length is intact", size)
		}
		if size > 0 && intact(p, size, stamp^1) {
			t.Errorf("size %d: a wrong stamp is intact", size)
		}
		step := max(1, size/100)
		for i := 0; i < size; i += step {
			p[i] ^= 0x80
			if intact(p, size, stamp) {
				t.Errorf("size %d: damage at %d went unnoticed", size, i)
			}
			p[i] ^= 0x80
		}
	}
}

func TestRestampIsFill(t *testing.T) {
	for _, size := range []int{0, 5, 8, 16, 100} {
		a, b := make([]byte, size), make([]byte, size)
		fill(a, stampOf(1, 1))
		fill(b, stampOf(1, 2))
		restamp(a, stampOf(1, 2))
		if !bytes.Equal(a, b) {
			t.Errorf("size %d: restamped %x, filled %x", size, a, b)
		}
	}
}

func TestSameEnds(t *testing.T) {
	p := make([]byte, 16)
	if fill(p, 7); !sameEnds(p) {
		t.Error("the ends of a stamped message differ")
	}
	p[15]++
	if sameEnds(p) {
		t.Error("damage at the end went unnoticed")
	}
	if !sameEnds(p[:15]) {
		t.Error("a message without a second stamp cannot be judged")
	}
}

// Messages of one process, and of processes with other seeds, have other stamps.
func TestStampsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(100) {
		for n := range uint64(100) {
			seen[stampOf(seed, n)] = true
		}
	}
	if len(seen) != 100*100 {
		t.Errorf("%d stamps of %d messages", len(seen), 100*100)
	}
}
