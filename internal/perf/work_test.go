package perf

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// What no tool could do is bad input, and names the flag.
func TestWorkCheck(t *testing.T) {
	caps := fabric.Caps{MaxInline: 100}
	good := func() *Work { return &Work{Sizes: Sweep(), Count: MaxCount, Inline: 100} }
	if err := good().Check(caps); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Work){
		"no size":         func(w *Work) { w.Sizes = nil },
		"too many sizes":  func(w *Work) { w.Sizes = append(w.Sizes, 1) },
		"size 0":          func(w *Work) { w.Sizes = []int{0} },
		"a negative size": func(w *Work) { w.Sizes = []int{-1} },
		"too large":       func(w *Work) { w.Sizes = []int{LargestSize + 1} },
		"nothing to do":   func(w *Work) { w.Count = 0 },
		"two ends":        func(w *Work) { w.Duration = 1 },
		"too many":        func(w *Work) { w.Count++ },
		"too long":        func(w *Work) { w.Count, w.Duration = 0, MaxDuration+1 },
		"a negative time": func(w *Work) { w.Count, w.Duration = 0, -1 },
		"too much inline": func(w *Work) { w.Inline = 101 },
		"negative inline": func(w *Work) { w.Inline = -2 },
	} {
		w := good()
		spoil(w)
		if err := w.Check(caps); !IsInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWork(t *testing.T) {
	if s := Sweep(); s[0] != 2 || s[len(s)-1] != LargestSize || len(s) != 23 {
		t.Errorf("a sweep of %v", s)
	}
	w := Work{Sizes: []int{3, 9, 5}, Inline: -1}
	if w.Largest() != 9 || w.InlineLimit(fabric.Caps{MaxInline: 1000}) != usualInline || w.InlineLimit(fabric.Caps{MaxInline: 7}) != 7 {
		t.Errorf("%+v", w)
	}
	if w.Inline = 3; w.InlineLimit(fabric.Caps{MaxInline: 7}) != 3 {
		t.Error("an inline size that was asked for is not the one")
	}
	w.Count = 5
	if w.Over(4, int64(time.Hour)) || !w.Over(5, 0) {
		t.Error("a count does not end by its messages")
	}
	w.Count, w.Duration = 0, time.Second
	if w.Over(1<<40, int64(time.Second)-1) || !w.Over(1, int64(time.Second)) {
		t.Error("a duration does not end by its time")
	}
}
