package main

import (
	"os"
	"slices"
	"testing"
	"time"
)

// Of workers that have finished none is called stuck, wherever among them those that are stuck stand.
func TestFinish(t *testing.T) {
	for range 100 { // what is there at the same time would be chosen at random
		f := &fleet{}
		var want []*member
		for i := range 6 {
			in, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			m := &member{role: "worker", in: in, finished: make(chan struct{}), gone: make(chan struct{})}
			switch i {
			case 0, 3:
				want = append(want, m)
			case 5:
				close(m.gone)
			default:
				close(m.finished)
			}
			f.members = append(f.members, m)
		}
		if got := f.finish(time.Nanosecond); !slices.Equal(got, want) {
			t.Fatalf("%d are stuck, want %d", len(got), len(want))
		}
	}
}
