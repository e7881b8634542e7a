package verbs

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

func TestErrors(t *testing.T) {
	cause := &CallError{Call: "ibv_reg_mr", Errno: syscall.ENOMEM}
	for _, c := range []struct {
		err  error
		is   error
		says []string
	}{
		{cause, syscall.ENOMEM, []string{"ibv_reg_mr: cannot allocate memory"}},
		{&OpenError{Key: "device", Err: ErrNoDevice, Detail: `looked for "x"; this machine has rxe0`}, ErrNoDevice, []string{"device", "rxe0"}},
		{&LimitError{What: "registration of memory in bytes", Asked: 4096, Limit: 64, Hint: "raise RLIMIT_MEMLOCK", Err: cause}, syscall.ENOMEM,
			[]string{"of 4096", "limit is 64", "RLIMIT_MEMLOCK"}},
	} {
		if !errors.Is(c.err, c.is) {
			t.Errorf("%v is not %v", c.err, c.is)
		}
		for _, s := range c.says {
			if !strings.Contains(c.err.Error(), s) {
				t.Errorf("%q does not say %q", c.err, s)
			}
		}
	}
}

// Every failure has a likely cause and a command to run next.
func TestCompletionError(t *testing.T) {
	for s := fabric.StatusLocalLength; s <= fabric.StatusFatal; s++ {
		for _, vendor := range []uint32{0, VendorPeerClosed, VendorCQError, VendorDeviceFatal, VendorQPFatal, VendorPortDown} {
			e := &CompletionError{
				Completion: fabric.Completion{Status: s, Vendor: vendor}, Peer: "PEER", QPN: 0x1234,
				GID: netip.MustParseAddr("::ffff:10.9.9.1"), Device: "rxe0", Timeout: 14, RetryCount: 7, RNRRetry: 6,
			}
			e.Cause, e.Next = likely(e.Completion, e.Device)
			says := []string{s.String(), "PEER", "0x1234", "10.9.9.1", "rxe0", e.Cause, "try: " + e.Next}
			switch s {
			case fabric.StatusRetryExceeded:
				says = append(says, "timeout 14 (67.108864ms)", "retry_count 7")
			case fabric.StatusRNRExceeded:
				says = append(says, "rnr_retry 6")
			}
			for _, want := range says {
				if want == "" || !strings.Contains(e.Error(), want) {
					t.Errorf("%q does not say %q", e, want)
				}
			}
			var se *fabric.StatusError
			if !errors.As(e, &se) || se.Status != s {
				t.Errorf("%v does not wrap its status", e)
			}
		}
	}
}

func TestEventText(t *testing.T) {
	for k := range eventKinds {
		if k.String() == "" {
			t.Errorf("event %d has no text", k)
		}
	}
	if s := (Event{Kind: EventPortError, Device: "rxe0", Port: 1}).String(); s != "rxe0: port error, port 1" {
		t.Error(s)
	}
	if s := (Event{Kind: EventQPFatal, Device: "rxe0", QPN: 17}).String(); s != "rxe0: queue pair fatal, queue pair 0x11" {
		t.Error(s)
	}
}
