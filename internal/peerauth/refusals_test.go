package peerauth

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// A refusal is news once for each reason and host, and again after a connection from there was taken.
func TestRefusalsAreNewsOnce(t *testing.T) {
	var r Refusals
	noTLS := &Refusal{Reason: "no-tls", Came: "something", Expected: "something else", Remedy: "this", Err: io.EOF}
	note := func(host string, err error, want bool) {
		t.Helper()
		if reason, text, news := r.Note(host, err); reason != "no-tls" || !strings.HasSuffix(text, noTLS.Error()) || news != want {
			t.Errorf("%q, %q, %v", reason, text, news)
		}
	}
	note("192.0.2.1", noTLS, true)
	note("192.0.2.1", fmt.Errorf("wrapped: %w", noTLS), false)
	note("192.0.2.2", noTLS, true)
	r.Forget("192.0.2.1")
	note("192.0.2.2", noTLS, false)
	note("192.0.2.1", noTLS, true)
	if st := r.Status(); len(st) != 2 || st[0].From != "192.0.2.1" || st[0].Count != 3 || st[1].Count != 2 {
		t.Errorf("%+v", st)
	}
}

// However many there are, they take a bounded amount of memory.
func TestRefusalsAreBounded(t *testing.T) {
	var r Refusals
	for i := range 10 * maxRefusals {
		r.Note("192.0.2.3", fmt.Errorf("reason %d \x1b %s", i, strings.Repeat("x", 2*MaxText)))
	}
	st := r.Status()
	if len(st) != maxRefusals || len(st[0].Text) != MaxText || len(st[0].Reason) != maxReason || st[0].AgeS > st[maxRefusals-1].AgeS {
		t.Errorf("%d refusals, the first %+v", len(st), st[0])
	}
	for _, e := range st {
		if strings.Contains(e.Text, "\x1b") {
			t.Errorf("a control character in %q", e.Text)
		}
	}
}
