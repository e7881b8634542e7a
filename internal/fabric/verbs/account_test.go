//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric/ledger"
)

// A device that refuses so much inline data is asked for less, and its first refusal is
// what is reported if it takes none.
func TestLessInline(t *testing.T) {
	for _, c := range []struct {
		most, takes, want int
		asked             []int
	}{
		{220, 1000, 220, []int{220}},
		{220, 60, 55, []int{220, 110, 55}},
		{3, 0, 0, []int{3, 1, 0}},
		{0, 0, 0, []int{0}},
	} {
		var asked []int
		got, inline, err := lessInline(c.most, func(n int) (string, error) {
			if asked = append(asked, n); n > c.takes {
				return "", unix.EINVAL
			}
			return "made", nil
		})
		if got != "made" || inline != c.want || err != nil || !slices.Equal(asked, c.asked) {
			t.Errorf("%+v: %q with %d, asked for %v: %v", c, got, inline, asked, err)
		}
	}
	first := errors.New("first")
	if _, _, err := lessInline(8, func(n int) (int, error) {
		if n == 8 {
			return 0, first
		}
		return 0, unix.ENOMEM
	}); err != first {
		t.Error(err)
	}
}

// There is somebody to say that the queue has room as long as a work request is in it whose completion
// its owner wants, and not only this package.
func TestStarved(t *testing.T) {
	e := &Endpoint{sq: ledger.NewRing[sendEntry](8)}
	if !e.starved() {
		t.Error("nothing is under way")
	}
	e.sq.Tail = 3
	if !e.starved() {
		t.Error("three are under way, none of which is reported")
	}
	e.sq.At(e.sq.Tail).report = true
	e.sq.Tail++
	if e.starved() {
		t.Error("the last one is reported")
	}
	e.sq.Tail += 2
	if e.starved() {
		t.Error("one before the last two is reported")
	}
	e.sq.Head = 4
	if !e.starved() {
		t.Error("it has completed")
	}
}
