package perf

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmad/rdmad/internal/perf/link"
)

func well() (any, error) { return 7, nil }
func released() error    { return nil }

// A run that a device holds up is left behind when the other side is gone, or when it is to end, within
// 5 s; one that is not ends as it does.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := waiting(t, nothingFound)
		stuck := make(chan struct{})
		defer close(stuck)
		held := func() (any, error) { <-stuck; return nil, nil }

		if v, err := guard(t.Context(), w.link, well, released); v != 7 || err != nil {
			t.Errorf("%v, %v", v, err)
		}
		bad := errors.New("bad")
		slow := func() error { time.Sleep(10 * time.Second); return bad }
		if v, err := guard(t.Context(), w.link, well, slow); v != 7 || !errors.Is(err, bad) || errors.Is(err, ErrHeld) {
			t.Errorf("a slow release: %v, %v", v, err)
		}
		forever := func() error { <-stuck; return nil }
		if _, err := guard(t.Context(), w.link, well, forever); !errors.Is(err, ErrHeld) {
			t.Errorf("a release without end: %v", err)
		}

		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if _, err := guard(limited, w.link, held, released); !errors.Is(err, ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that is to end: %v", err)
		}
		if took := time.Since(begun) - time.Minute; took > 5*time.Second {
			t.Errorf("it ended %v later", took)
		}

		go func() {
			time.Sleep(time.Hour)
			_ = other.Close()
		}()
		begun = time.Now()
		if _, err := guard(t.Context(), w.link, held, released); !errors.Is(err, ErrHeld) || !errors.Is(err, link.ErrLost) {
			t.Errorf("the other side is gone: %v", err)
		}
		if took := time.Since(begun) - time.Hour; took > 5*time.Second {
			t.Errorf("it was reported %v later", took)
		}
		// It knows by itself what the end of the link means.
		lost := func() (any, error) { time.Sleep(2 * time.Second); return nil, bad }
		if _, err := guard(t.Context(), w.link, lost, released); !errors.Is(err, bad) || errors.Is(err, ErrHeld) {
			t.Errorf("one that ends: %v", err)
		}
	})
}
