package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
)

// What is asked for is what is followed: a service, a method, a caller, one of several.
func TestTraceFilters(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	stop := keepCalling(t, c, "b/text/upper", []byte("x"))
	defer stop()
	for _, none := range []attach.Trace{{Service: "other"}, {Service: "text", Method: "fail"}, {Worker: "nobody"}, {Worker: "1"}} {
		none.Count, none.TimeoutMillis = 1, 300
		if list := beginTrace(t, a, none)(); len(list) != 0 {
			t.Errorf("%+v: %+v", none, list)
		}
	}
	for _, some := range []attach.Trace{{Method: "upper"}, {Worker: fmt.Sprint(syscall.Getpid())}, {Domain: "default", Every: 7}} {
		some.Count, some.TimeoutMillis = 5, 120000
		if list := beginTrace(t, a, some)(); len(list) != 5 {
			t.Errorf("%+v: %d traces", some, len(list))
		}
	}
	// Each of them is bounded, and so is their number.
	var held []*attach.Session
	for range 4 { // each follows all requests, and fetches them no more
		held = append(held, holdTrace(t, a, c))
	}
	err := traceError(t, a, attach.Trace{Service: "other", Count: 1, TimeoutMillis: 1})
	if !errors.Is(err, attach.ErrLimit) || !strings.Contains(err.Error(), "4 traces are under way on node a") {
		t.Errorf("a fifth trace: %v", err)
	}
	for _, s := range held {
		_ = s.Close()
	}
	daemontest.Eventually(t, "a trace when the others have ended", func() error {
		return traceError(t, a, attach.Trace{Count: 1, TimeoutMillis: 1})
	})
	for _, bad := range []attach.Trace{{}, {Count: 1}, {Count: -1, TimeoutMillis: 1}, {Count: 1, TimeoutMillis: 1 << 40}, {Count: 1, TimeoutMillis: 1, Every: -1}, {Count: 1, TimeoutMillis: 1, Service: "a b"}} {
		if err := traceError(t, a, bad); !errors.Is(err, attach.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := traceError(t, a, attach.Trace{Count: 1, TimeoutMillis: 1, Domain: "none"}); !errors.Is(err, attach.ErrPermission) {
		t.Errorf("unknown domain: %v", err)
	}
}

// holdTrace begins a trace, and returns when it follows requests. It ends
// with the session.
func holdTrace(t *testing.T, n *daemontest.Node, c *client.Conn) *attach.Session {
	t.Helper()
	s, err := attach.Open(t.Context(), n.Socket, attach.Hello{Role: attach.RoleTool, Name: "tracer"}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		s.Release()
	})
	defer keepCalling(t, c, "b/text/upper", nil)()
	for ask := (&attach.Trace{Count: 10000, TimeoutMillis: 600000}); ; ask = nil {
		a, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypeTrace, Trace: ask})
		if err != nil {
			t.Fatal(err)
		}
		var got status.Traced
		if err := json.Unmarshal(a.TracedJSON, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Traces) > 0 {
			return s
		}
	}
}

// A tool that fetches nothing is given no more than there is room for, and then all of it;
// others are given theirs meanwhile.
func TestTraceBacklog(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	m, err := c.Method(t.Context(), "b/text/upper")
	if err != nil {
		t.Fatal(err)
	}
	s := holdTrace(t, a, c)
	reqs := make([][]byte, 60)
	for range 40 {
		if _, err := m.CallBatch(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
	}
	stop := keepCalling(t, c, "b/text/upper", []byte("x"))
	if list := beginTrace(t, a, attach.Trace{Count: 5, TimeoutMillis: 120000})(); len(list) != 5 {
		t.Errorf("%d traces beside a tool that fetches nothing", len(list))
	}
	stop()
	n := 0
	for {
		answer, err := s.Ask(t.Context(), &attach.Message{Type: attach.TypeTrace})
		if err != nil {
			t.Fatal(err)
		}
		var got status.Traced
		if err := json.Unmarshal(answer.TracedJSON, &got); err != nil {
			t.Fatal(err)
		}
		if n += len(got.Traces); len(got.Traces) == 0 {
			break
		}
		for _, tr := range got.Traces {
			stagesOf(t, &tr)
		}
	}
	if n == 0 || n > 256 {
		t.Errorf("%d traces, and at most 256 are kept", n)
	}
}

// traceError begins a trace and returns how it is refused.
func traceError(t *testing.T, n *daemontest.Node, spec attach.Trace) error {
	t.Helper()
	s, err := attach.Open(t.Context(), n.Socket, attach.Hello{Role: attach.RoleTool, Name: "tracer"}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	defer s.Close()
	_, err = s.Ask(t.Context(), &attach.Message{Type: attach.TypeTrace, Trace: &spec})
	return err
}

// A core that ends takes its traces with it, and the next one follows nothing of itself.
func TestTraceEndsWithItsCore(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	s, err := attach.Open(t.Context(), a.Socket, attach.Hello{Role: attach.RoleTool, Name: "tracer"}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	defer s.Close()
	done := make(chan error, 1)
	go func() {
		for ask := (&attach.Trace{Service: "other", Count: 1, TimeoutMillis: 60000}); ; ask = nil {
			if _, err := s.Ask(context.Background(), &attach.Message{Type: attach.TypeTrace, Trace: ask}); err != nil {
				done <- err
				return
			}
		}
	}()
	if err := a.KillCore(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, attach.ErrClosed) {
		t.Errorf("the trace ended with %v", err)
	}
	callable(t, c, "b/text/upper")
	stop := keepCalling(t, c, "b/text/upper", []byte("x"))
	defer stop()
	if list := beginTrace(t, a, attach.Trace{Count: 2, TimeoutMillis: 120000})(); len(list) != 2 {
		t.Errorf("%d traces with the next core", len(list))
	}
}

// Requests of one domain are told from those of another.
func TestTraceDomains(t *testing.T) {
	a, b := daemontest.Pair(t, fmt.Sprintf("[[domain]]\nname=\"work\"\nusers=[\"%d\"]\n[[domain]]\nname=\"other\"\nusers=[\"12345\"]\n", syscall.Getuid()))
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	stop := keepCalling(t, c, "b/text/upper", []byte("x"))
	defer stop()
	list := beginTrace(t, a, attach.Trace{Domain: "work", Count: 2, TimeoutMillis: 120000})()
	if len(list) != 2 || list[0].Domain != "work" || list[0].Service != "text" || list[0].Handler.PID == 0 {
		t.Errorf("%+v", list)
	}
	if list := beginTrace(t, a, attach.Trace{Domain: "other", Count: 2, TimeoutMillis: 300})(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
