package content

import (
	"bytes"
	"testing"
)

// Every single wrong byte, and every wrong length, must be noticed.
func TestIntactNoticesDamage(t *testing.T) {
	for _, size := range []int{0, 1, 7, 8, 9, 15, 16, 17, 64, 1000, patternSize - 1, patternSize, 2*patternSize + 5} {
		stamp := Stamp(1, uint64(size))
		p := make([]byte, size)
		Fill(p, stamp)
		if !Intact(p, size, stamp) || !SameEnds(p) {
			t.Fatalf("size %d: own content is not intact", size)
		}
		if Intact(p, size+1, stamp) || size > 0 && Intact(p[:size-1], size, stamp) {
			t.Errorf("size %d: a wrong length is intact", size)
		}
		if size > 0 && Intact(p, size, stamp^1) {
			t.Errorf("size %d: a wrong stamp is intact", size)
		}
		step := max(1, size/100)
		for i := 0; i < size; i += step {
			p[i] ^= 0x80
			if Intact(p, size, stamp) {
				t.Errorf("size %d: damage at %d went unnoticed", size, i)
			}
			p[i] ^= 0x80
		}
	}
}

func TestRestampIsFill(t *testing.T) {
	for _, size := range []int{0, 5, 8, 16, 100} {
		a, b := make([]byte, size), make([]byte, size)
		Fill(a, Stamp(1, 1))
		Fill(b, Stamp(1, 2))
		Restamp(a, Stamp(1, 2))
		if !bytes.Equal(a, b) {
			t.Errorf("size %d: restamped %x, filled %x", size, a, b)
		}
	}
}

func TestSameEnds(t *testing.T) {
	p := make([]byte, 16)
	if Fill(p, 7); !SameEnds(p) {
		t.Error("the ends of a stamped message differ")
	}
	p[15]++
	if SameEnds(p) {
		t.Error("damage at the end went unnoticed")
	}
	if !SameEnds(p[:15]) {
		t.Error("a message without a second stamp cannot be judged")
	}
}

// Messages of one process, and of processes with other seeds, have other stamps.
func TestStampsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(100) {
		for n := range uint64(100) {
			seen[Stamp(seed, n)] = true
		}
	}
	if len(seen) != 100*100 {
		t.Errorf("%d stamps of %d messages", len(seen), 100*100)
	}
}
