package attach_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
)

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range []*attach.Message{
		{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: 1, ABI: 1, Role: attach.RoleClient, Name: "x"}},
		{Type: attach.TypeResolve, Seq: 3, Target: &attach.Target{Service: "s", Method: "m"}},
		{Type: attach.TypeResolve, Seq: 4, Target: &attach.Target{Service: "s", Method: "m", Avoid: []string{"a", "b"}}},
		{Type: attach.TypeRegister, Methods: []attach.Method{{Service: "s", Method: "m", Answer: -1}}},
		{Type: attach.TypeFail, Fail: &attach.Fail{Code: "limit", Text: "no"}},
		{Type: attach.TypeStatusIs, StatusJSON: json.RawMessage(`{"node":"a"}`)},
	} {
		data, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("{}"))
	f.Add([]byte("null"))
	f.Add([]byte("\x00\x01\x02"))
	f.Add([]byte(`{"type":"lane","lane":{"id":70000}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := attach.DecodeMessage(data)
		if err != nil {
			if !errors.Is(err, attach.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if m.Type == "" {
			t.Fatal("a message without a type")
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := attach.DecodeMessage(again); err != nil {
			t.Fatalf("%s is not read again: %v", again, err)
		}
	})
}

// What is said of a message that makes no sense goes to a log, and back: it is not as long as the message.
func TestDecodeErrorsAreShort(t *testing.T) {
	_, err := attach.DecodeMessage([]byte(`{"seq":` + strings.Repeat("9", attach.MaxMessage/2) + `}`))
	if !errors.Is(err, attach.ErrInvalid) || len(err.Error()) > 300 {
		t.Errorf("%d bytes: %.80v", len(err.Error()), err)
	}
}

func TestCheckTarget(t *testing.T) {
	names := func(n, size int) []string { return slices.Repeat([]string{strings.Repeat("x", size)}, n) }
	for _, c := range []struct {
		target attach.Target
		good   bool
	}{
		{attach.Target{Service: "s", Method: "m"}, true},
		{attach.Target{Node: "any text", Service: "s", Method: "m"}, true},
		{attach.Target{Service: "s"}, false},
		{attach.Target{Service: "s/t", Method: "m"}, false},
		{attach.Target{Service: "s", Method: "m", Avoid: names(attach.MaxAvoid, attach.MaxNameLen)}, true},
		{attach.Target{Service: "s", Method: "m", Avoid: names(attach.MaxAvoid+1, 1)}, false},
		{attach.Target{Service: "s", Method: "m", Avoid: names(1, attach.MaxNameLen+1)}, false},
		{attach.Target{Service: "s", Method: "m", Avoid: names(2, 0)}, false},
		{attach.Target{Service: "s", Method: "m", Avoid: []string{"a\n"}}, false},
	} {
		if err := c.target.Check(); (err == nil) != c.good {
			t.Errorf("%+v: %v", c.target, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "A-b_c.9", strings.Repeat("x", attach.MaxNameLen)} {
		if err := attach.CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a b", "a/b", "ä", "a\x00", strings.Repeat("x", attach.MaxNameLen+1)} {
		if attach.CheckName(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Every error keeps its kind on the way through the socket.
func TestFail(t *testing.T) {
	for _, e := range []error{attach.ErrNotRunning, attach.ErrPermission, attach.ErrVersion, attach.ErrNoService, attach.ErrLimit, attach.ErrInvalid, attach.ErrClosed} {
		fail := attach.FailFor(fmt.Errorf("because: %w", e))
		if got := fail.Err(); !errors.Is(got, e) || got.Error() != "because: "+e.Error() {
			t.Errorf("%v has become %v", e, got)
		}
	}
	// The way to a service is lost because a connection is: that is no end of the asker's connection.
	for range 20 {
		both := attach.FailFor(fmt.Errorf("%w: %w", attach.ErrNoService, fmt.Errorf("%w: the domain gets new memory", attach.ErrClosed)))
		if got := both.Err(); !errors.Is(got, attach.ErrNoService) || errors.Is(got, attach.ErrClosed) {
			t.Fatalf("of two errors the inner one is told: %v", got)
		}
	}
	for _, f := range []*attach.Fail{attach.FailFor(errors.New("odd")), {Code: "from the future", Text: "odd"}} {
		if got := f.Err(); !errors.Is(got, attach.ErrInvalid) || got.Error() != "odd" {
			t.Errorf("%v", got)
		}
	}
}

func TestSocketPath(t *testing.T) {
	t.Setenv(attach.SocketEnv, "")
	if got := attach.SocketPath(""); got != attach.DefaultSocket {
		t.Error(got)
	}
	t.Setenv(attach.SocketEnv, "/from/env")
	if got := attach.SocketPath(""); got != "/from/env" {
		t.Error(got)
	}
	if got := attach.SocketPath("/said"); got != "/said" {
		t.Error(got)
	}
}

func TestDialError(t *testing.T) {
	for err, want := range map[error]error{
		os.ErrNotExist: attach.ErrNotRunning, unix.ECONNREFUSED: attach.ErrNotRunning, unix.EACCES: attach.ErrPermission, unix.EIO: unix.EIO,
	} {
		if got := attach.DialError("/s", err); !errors.Is(got, want) || !strings.Contains(got.Error(), "/s") {
			t.Errorf("%v has become %v", err, got)
		}
	}
}

// What is no socket, the kernel says, refuses the connection.
func TestFileInPlaceOfSocket(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir} {
		_, err := attach.Open(t.Context(), path, attach.Hello{Role: attach.RoleTool}, attach.Events{})
		if !errors.Is(err, attach.ErrNotRunning) || !strings.Contains(err.Error(), path+" is no socket") {
			t.Errorf("%v", err)
		}
	}
}

// Where no socket can be nobody listens, and the error says why: the kernel only has "invalid argument" for it.
func TestSocketPathTooLong(t *testing.T) {
	socket := filepath.Join(t.TempDir(), strings.Repeat("s", 120))
	_, err := attach.Open(t.Context(), socket, attach.Hello{Role: attach.RoleTool}, attach.Events{})
	if !errors.Is(err, attach.ErrNotRunning) || !strings.Contains(err.Error(), "at most 107") {
		t.Error(err)
	}
}

// For how long requests can be held up is a time that makes sense, whatever the message says.
func TestHold(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: 0, 1: time.Millisecond, 10_000: 10 * time.Second, -5: 0, math.MinInt64: 0, 3_600_001: time.Hour + time.Millisecond, math.MaxInt64: 4 * time.Hour, 4*3_600_000 + 1: 4 * time.Hour,
	} {
		w := attach.Welcome{HoldMillis: ms}
		if got := w.Hold(); got != want {
			t.Errorf("%d ms: %v", ms, got)
		}
		r := attach.Resumed{HoldMillis: ms}
		if got, said := r.Hold(); got != want || said != (ms != 0) {
			t.Errorf("%d ms, in the next core: %v, %v", ms, got, said)
		}
	}
}
