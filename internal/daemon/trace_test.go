package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/server"
)

// beginTrace has node n follow requests. collect returns what was found, at its end.
func beginTrace(t *testing.T, n *daemontest.Node, spec attach.Trace) (collect func() []status.Trace) {
	t.Helper()
	collect, _ = followed(t, n, spec)
	return collect
}

// followed is beginTrace, and begun is closed when the first request was found, or the
// trace has ended without one.
func followed(t *testing.T, n *daemontest.Node, spec attach.Trace) (collect func() []status.Trace, begun <-chan struct{}) {
	t.Helper()
	s, err := attach.Open(t.Context(), n.Socket, attach.Hello{Role: attach.RoleTool, Name: "tracer"}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		list []status.Trace
		err  error
	}
	done, first := make(chan result, 1), make(chan struct{})
	go func() {
		defer s.Release()
		defer s.Close()
		var r result
		defer func() {
			if len(r.list) == 0 {
				close(first)
			}
		}()
		for ask := &spec; ; ask = nil {
			a, err := s.Ask(context.Background(), &attach.Message{Type: attach.TypeTrace, Trace: ask})
			if err != nil {
				done <- result{r.list, err}
				return
			}
			var got status.Traced
			if err := json.Unmarshal(a.TracedJSON, &got); err != nil {
				done <- result{r.list, err}
				return
			}
			if len(r.list) == 0 && len(got.Traces) > 0 {
				close(first)
			}
			if r.list = append(r.list, got.Traces...); got.Over != "" {
				done <- r
				return
			}
		}
	}()
	t.Cleanup(func() { _ = s.Close() })
	return func() []status.Trace {
		t.Helper()
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.list
	}, first
}

// callUntil calls target until begun is closed.
func callUntil(t *testing.T, c *client.Conn, target string, begun <-chan struct{}) {
	t.Helper()
	daemontest.Eventually(t, "a request is followed", func() error {
		if _, err := c.Call(t.Context(), target, nil); err != nil {
			return err
		}
		select {
		case <-begun:
			return nil
		default:
			return errors.New("not yet")
		}
	})
}

// stagesOf returns the stages of a trace by name, after a look at what must hold for all.
func stagesOf(t *testing.T, tr *status.Trace) map[string]time.Duration {
	t.Helper()
	m := make(map[string]time.Duration)
	var names []string
	sum := int64(0)
	for _, s := range tr.Stages {
		if s.NS < 0 || !s.Known && s.NS != 0 && s.Stage != "handler" {
			t.Errorf("stage %+v", s)
		}
		if s.Clock == "" {
			t.Errorf("%s has no clock", s.Stage)
		}
		names = append(names, s.Stage)
		sum += s.NS
		m[s.Stage] = time.Duration(s.NS)
	}
	if want := []string{"claim", "queue", "post", "wire", "inbox", "handler", "back"}; !slices.Equal(names, want) {
		t.Errorf("stages %v", names)
	}
	if sum != tr.TotalNS {
		t.Errorf("the stages add up to %d ns, the total is %d", sum, tr.TotalNS)
	}
	return m
}

// keepCalling calls target until stop is called.
func keepCalling(t *testing.T, c *client.Conn, target string, req []byte) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := c.Call(ctx, target, req); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// toldInFull calls follow, which returns the requests that a trace has found, again while the other end has told nothing of
// one of them: the core waits for that no longer than for some seconds, in which a machine may stand still.
func toldInFull(follow func() []status.Trace) []status.Trace {
	untold := func(note string) bool { return strings.Contains(note, "the other end tells no stages") }
	for tries := 5; ; tries-- {
		list := follow()
		if tries == 1 || !slices.ContainsFunc(list, func(tr status.Trace) bool { return slices.ContainsFunc(tr.Notes, untold) }) {
			return list
		}
	}
}

const slowHandler = 20 * time.Millisecond

// slow is a handler that takes its time.
func slow(c *server.Call) error {
	time.Sleep(slowHandler) // what is measured
	return c.Reply(c.Request())
}

// The time of a handler is the handler's, between nodes and within one, and the stages
// add up to the time that the caller has waited.
func TestTraceHandler(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	attachServer(t, b, map[string]server.Handler{"slow": slow})
	attachServer(t, a, map[string]server.Handler{"near": slow})
	c := attachClient(t, a)
	for _, target := range []string{"b/text/slow", "a/text/near"} {
		callable(t, c, target)
		list := toldInFull(func() []status.Trace {
			collect := beginTrace(t, a, attach.Trace{Service: "text", Count: 4, TimeoutMillis: 120000})
			stop := keepCalling(t, c, target, []byte("hello"))
			defer stop()
			return collect()
		})
		// One call comes after the other, so at most one was on its way when the caller was
		// asked for its times.
		list = slices.DeleteFunc(list, func(tr status.Trace) bool {
			return len(tr.Notes) == 1 && strings.Contains(tr.Notes[0], "it was not asked in time")
		})
		if len(list) < 3 {
			t.Fatalf("%s: %d traces", target, len(list))
		}
		for _, tr := range list {
			m := stagesOf(t, &tr)
			if m["handler"] < slowHandler || m["handler"] > m["claim"]+time.Duration(tr.TotalNS) {
				t.Errorf("%s: %+v", target, tr)
			}
			others := time.Duration(tr.TotalNS) - m["handler"]
			if others <= 0 {
				t.Errorf("%s: nothing but the handler: %+v", target, tr)
			}
			local := strings.HasPrefix(target, "a/")
			want := status.Trace{From: "a", To: target[:1], Service: "text", Method: target[7:], Domain: "default", Kind: "request", Outcome: "answered"}
			if tr.From != want.From || tr.To != want.To || tr.Service != want.Service || target != fmt.Sprintf("%s/%s/%s", tr.To, tr.Service, tr.Method) ||
				tr.Kind != want.Kind || tr.Outcome != want.Outcome || tr.RequestBytes != 5 || tr.AnswerBytes != 5 || tr.Stage != "" || len(tr.Notes) != 0 {
				t.Errorf("%s: %+v", target, tr)
			}
			if tr.Caller.PID != syscall.Getpid() || tr.Handler.PID != syscall.Getpid() || tr.Path.Local != local {
				t.Errorf("%s: %+v", target, tr)
			}
			if local != (tr.Path.WRs == 0) || tr.Path.Slots < 1 || tr.Path.GroupMessages != 1 || tr.Path.AnswerMessages != 1 || tr.Path.Class == "" {
				t.Errorf("%s: path %+v", target, tr.Path)
			}
			if tr.Path.Device != "" { // tcp has nothing to say of a connection, and this node's own address is not the way
				t.Errorf("%s: device %q", target, tr.Path.Device)
			}
			if !local && tr.Path.Provider != "tcp" || local && (m["wire"] != 0 || tr.Path.Provider != "local") {
				t.Errorf("%s: %v, path %+v", target, m, tr.Path)
			}
		}
	}
}

// A process that is stopped leaves its requests in the inbox, and a daemon that is
// stopped on the wire.
func TestTraceOfStoppedReceiver(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	p := daemontest.Spawn(t, "traced", b.Socket)
	serve(t, a)
	c := attachClient(t, a)
	callable(t, c, "b/text/quick")
	for _, test := range []struct {
		what, stage string
		stop        func() (resume func() error)
	}{
		{"process", "inbox", func() func() error {
			if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			return func() error { return p.Process.Signal(syscall.SIGCONT) }
		}},
		{"daemon", "wire", func() func() error {
			resume, err := b.StopCore()
			if err != nil {
				t.Fatal(err)
			}
			return resume
		}},
	} {
		// A peer that does not answer delays the beginning of a trace by 2 s.
		inTrace(t, 3500, func(millis int64, last bool) bool {
			resume := test.stop()
			collect, begun := followed(t, a, attach.Trace{Count: 10000, TimeoutMillis: millis})
			callUntil(t, c, "a/text/upper", begun)
			if _, err := c.Go(context.Background(), "b/text/quick", []byte("x")); err != nil {
				t.Fatal(err)
			}
			list := slices.DeleteFunc(collect(), func(tr status.Trace) bool { return tr.Path.Local })
			if err := resume(); err != nil {
				t.Fatal(err)
			}
			daemontest.Eventually(t, "goes on", func() error {
				_, err := c.Call(t.Context(), "b/text/quick", []byte("x"))
				return err
			})
			var m map[string]time.Duration
			if len(list) == 1 {
				m = stagesOf(t, &list[0])
			}
			if len(list) == 1 && list[0].Outcome == "under way" && list[0].Stage == test.stage && m[test.stage] >= time.Duration(list[0].TotalNS)/2 {
				return true
			}
			if last {
				t.Errorf("%s: %v of %+v", test.what, m, list)
			}
			return false
		})
	}
}

// inTrace calls f with the time for which a trace is to follow requests, which begins with
// millis, and again with twice as much, until f returns true: what it wants to happen before
// the trace ends has happened before it, which is not up to the test. last is its last chance.
func inTrace(t *testing.T, millis int64, f func(millis int64, last bool) bool) {
	t.Helper()
	const tries = 5
	for n := range tries {
		if f(millis<<n, n == tries-1) {
			return
		}
	}
}

// runTraced serves text/quick until it is killed.
func runTraced(args []string) error {
	s, err := server.Attach(context.Background(), args[0], server.Name("traced"))
	if err != nil {
		return err
	}
	if err := s.Handle("text", "quick", func(c *server.Call) error { return c.Reply(c.Request()) }); err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Serve(context.Background())
}

// Group sizes are those that the counters tell, and every request of a batch is found.
func TestTraceGroups(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	m, err := c.Method(t.Context(), "b/text/upper")
	if err != nil {
		t.Fatal(err)
	}
	const batch = 20
	reqs := make([][]byte, batch)
	for i := range reqs {
		reqs[i] = []byte("abc")
	}
	var list []status.Trace
	var before, after *status.Node
	inTrace(t, 2000, func(millis int64, _ bool) bool {
		collect, begun := followed(t, a, attach.Trace{Worker: fmt.Sprint(syscall.Getpid()), Count: 10000, TimeoutMillis: millis})
		callUntil(t, c, "b/text/upper", begun)
		before = statusOf(t, a)
		if _, err := m.CallBatch(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		after = statusOf(t, a)
		list = slices.DeleteFunc(collect(), func(tr status.Trace) bool { return tr.RequestBytes != 3 })
		return len(list) == batch
	})
	groups := map[int]int{}
	n := 0
	for _, tr := range list {
		stagesOf(t, &tr)
		n++
		if tr.Path.GroupSlots < tr.Path.GroupMessages || tr.Path.WRs < 1 || tr.Path.SlotsPerWR != float64(tr.Path.GroupSlots)/float64(tr.Path.WRs) {
			t.Errorf("path %+v", tr.Path)
		}
		groups[tr.Path.GroupMessages]++
	}
	if n != batch {
		t.Errorf("%d traces of %d requests", n, batch)
	}
	sum := 0
	for size, n := range groups {
		if n%size != 0 {
			t.Errorf("%d requests went in groups of %d", n, size)
		}
		sum += n / size
	}
	if sent := after.Counters["request_groups"] - before.Counters["request_groups"]; sent != uint64(sum) {
		t.Errorf("the traces are of %d groups, the counters say %d", sum, sent)
	}
}

// One-way messages, errors, streams and large messages say what they can.
func TestTraceOfEverything(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := serve(t, b)
	if err := s.HandleStream("text", "stream", func(s *server.Stream) error {
		for {
			msg, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = s.Send(msg)
			}
			if err != nil {
				return err
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	for _, test := range []struct {
		what, kind, outcome string
		do                  func() error
	}{
		{"one-way", "one-way", "answered", func() error { return c.Post(t.Context(), "b/text/upper", []byte("x")) }},
		{"error", "request", "remote error", func() error {
			if _, err := c.Call(t.Context(), "b/text/fail", nil); !errors.Is(err, client.ErrRemote) {
				return fmt.Errorf("want a remote error: %w", err)
			}
			return nil
		}},
		{"large", "part", "answered", func() error {
			_, err := c.Call(t.Context(), "b/text/upper", make([]byte, 4<<20)) // longer than any run: all of it goes in parts
			return err
		}},
		{"stream", "part", "answered", func() error {
			st, err := c.Stream(t.Context(), "b/text/stream")
			if err != nil {
				return err
			}
			defer st.Close()
			if err := st.Send(t.Context(), []byte("x")); err != nil {
				return err
			}
			_, err = st.Recv(t.Context())
			return err
		}},
	} {
		list := toldInFull(func() (list []status.Trace) {
			collect := beginTrace(t, a, attach.Trace{Service: "text", Count: 1, TimeoutMillis: 120000})
			done := make(chan []status.Trace, 1)
			go func() { done <- collect() }()
			for list == nil {
				if err := test.do(); err != nil {
					t.Fatalf("%s: %v", test.what, err)
				}
				select {
				case list = <-done:
				case <-time.After(time.Millisecond):
				}
			}
			return list
		})
		if len(list) != 1 || list[0].Kind != test.kind || list[0].Outcome != test.outcome {
			t.Errorf("%s: %+v", test.what, list)
			continue
		}
		m := stagesOf(t, &list[0])
		if m["inbox"]+m["handler"]+m["back"] == 0 {
			t.Errorf("%s: %+v", test.what, list[0])
		}
	}
}

// Processes that attach while a trace runs, make one call and go at once are asked for their stamps before they can send
// anything, are followed also if the trace is of their name alone, and have it when they are gone.
func TestTraceOfBriefProcesses(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	brief := func() *client.Conn {
		c, err := client.Attach(t.Context(), a.Socket, client.Name("brief"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	stays := brief()
	defer stays.Close()
	callable(t, stays, "b/text/upper")
	const calls = 20
	for _, spec := range []attach.Trace{{Service: "text"}, {Worker: "brief"}} {
		var list []status.Trace
		inTrace(t, 1000, func(millis int64, last bool) bool {
			spec.Count, spec.TimeoutMillis = 10000, millis
			collect, begun := followed(t, a, spec)
			callUntil(t, stays, "b/text/upper", begun)
			for range calls {
				c := brief()
				if _, err := c.Call(t.Context(), "b/text/upper", []byte("brief")); err != nil {
					t.Fatal(err)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
			list = slices.DeleteFunc(collect(), func(tr status.Trace) bool { return tr.RequestBytes == 0 })
			if last && len(list) != calls {
				t.Errorf("%+v: %d traces of %d calls", spec, len(list), calls)
			}
			return len(list) == calls
		})
		for _, tr := range list {
			stagesOf(t, &tr)
			for _, s := range tr.Stages[:2] { // claim and queue
				if !s.Known {
					t.Errorf("%+v: nothing of %s: %v", spec, s.Stage, tr.Notes)
				}
			}
			if tr.Caller.Name != "brief" || tr.Caller.PID != syscall.Getpid() {
				t.Errorf("%+v: the caller is %+v", spec, tr.Caller)
			}
		}
	}
}
