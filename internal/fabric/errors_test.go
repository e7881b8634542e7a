package fabric_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Every status has its own text, and everything but success is an error that
// names it.
func TestStatusTable(t *testing.T) {
	seen := make(map[string]fabric.Status)
	for s := fabric.StatusSuccess; s <= fabric.StatusFatal; s++ {
		text := s.String()
		if text == "" {
			t.Errorf("status %d has no text", uint8(s))
		}
		if other, ok := seen[text]; ok {
			t.Errorf("statuses %d and %d are both %q", uint8(other), uint8(s), text)
		}
		seen[text] = s
		err := s.Err()
		if s == fabric.StatusSuccess {
			if err != nil {
				t.Errorf("success is the error %v", err)
			}
			continue
		}
		var se *fabric.StatusError
		if wrapped := fmt.Errorf("post: %w", err); !errors.As(wrapped, &se) || se.Status != s {
			t.Errorf("%v: error %v does not carry the status", s, err)
		}
		if want := "fabric: " + text; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	for _, s := range []fabric.Status{fabric.StatusFatal + 1, 255} {
		if want := fmt.Sprintf("status(%d)", uint8(s)); s.String() != want {
			t.Errorf("%q, want %q: the table has an entry without a constant", s, want)
		}
	}
}

func TestConnectErrorNamesPeerAndCause(t *testing.T) {
	err := error(&fabric.ConnectError{Peer: "10.0.0.1:7", Err: fabric.ErrClosed})
	if !errors.Is(err, fabric.ErrClosed) {
		t.Error("the cause is lost")
	}
	if want := "fabric: connect to 10.0.0.1:7: fabric: closed"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}
