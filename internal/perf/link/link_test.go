package link

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of a test.
const patience = time.Minute

var usual = Greeting{Version: "1", Protocol: Protocol, Provider: "tcp", Tool: "pingpong"}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// outcome is what Accept or Dial returned.
type outcome struct {
	l   *Link
	err error
}

// meet lets a server and a client greet each other.
func meet(t testing.TB, server, client Greeting) (s, c outcome) {
	t.Helper()
	ctx, ln := within(t), listen(t)
	done := make(chan outcome)
	go func() {
		l, err := Accept(ctx, ln, server, nil)
		done <- outcome{l, err}
	}()
	c.l, c.err = Dial(ctx, ln.Addr().String(), client)
	s = <-done
	for _, o := range []outcome{s, c} {
		if o.l != nil {
			t.Cleanup(func() { _ = o.l.Close() })
		}
	}
	return s, c
}

// pair returns both ends of a link.
func pair(t testing.TB) (server, client *Link) {
	t.Helper()
	s, c := meet(t, usual, usual)
	must(t, errors.Join(s.err, c.err))
	return s.l, c.l
}

type number struct {
	N int `json:"n"`
}

func TestMessages(t *testing.T) {
	s, c := pair(t)
	ctx := within(t)
	if s.News() || c.peer != usual || s.peer != usual {
		t.Error("the greeting is news, or lost")
	}
	for i := range 100 {
		must(t, c.Send("question", number{i}))
		var got number
		must(t, s.Receive(ctx, "question", &got))
		if got.N != i {
			t.Fatalf("%d, want %d", got.N, i)
		}
		must(t, s.Send("answer", number{-i}))
		must(t, c.Receive(ctx, "answer", &got))
		if got.N != -i {
			t.Fatalf("%d, want %d", got.N, -i)
		}
	}
	must(t, c.Send("other", number{}))
	var broken *ProtocolError
	if err := s.Receive(ctx, "question", &number{}); !errors.As(err, &broken) {
		t.Errorf("a message of another kind: %v", err)
	}
	must(t, c.Send("question", map[string]int{"unknown": 1}))
	if err := s.Receive(ctx, "question", &number{}); !errors.As(err, &broken) {
		t.Errorf("a body with an unknown key: %v", err)
	}
	if err := c.Send("question", strings.Repeat("x", MaxMessage)); err == nil {
		t.Error("a message beyond the limit can be sent")
	}
}

// What the other side says of itself does not disturb the terminal that it is printed on, whatever it is.
func TestPlainTexts(t *testing.T) {
	s, c := pair(t)
	must(t, c.Send("used", map[string]string{"device": "\x1b]0;title\x07\u009b2J\n\t5\tsend"}))
	var got map[string]string
	must(t, s.Receive(within(t), "used", &got))
	if want := "?]0;title??2J  5 send"; got["device"] != want {
		t.Errorf("%q, want %q", got["device"], want)
	}
	c.Fail(errors.New("no\x1b[2J"), false)
	var failed *RefusedError
	if err := s.Receive(within(t), "used", &got); !errors.As(err, &failed) || failed.Reason != "no?[2J" {
		t.Errorf("%v", err)
	}
}

// Sides that differ say so on both ends, and what differs.
func TestMismatch(t *testing.T) {
	for what, other := range map[string]Greeting{
		whatProtocol: {Version: "2", Protocol: Protocol + 1, Provider: "tcp", Tool: "pingpong"},
		whatProvider: {Version: "2", Protocol: Protocol, Provider: "libfabric shm", Tool: "pingpong"},
		whatTool:     {Version: "2", Protocol: Protocol, Provider: "tcp", Tool: "blast"},
	} {
		for _, swap := range []bool{false, true} {
			a, b := usual, other
			if swap {
				a, b = b, a
			}
			s, c := meet(t, a, b)
			for side, err := range map[string]error{"server": s.err, "client": c.err} {
				var m *MismatchError
				if !errors.As(err, &m) || m.What != what {
					t.Errorf("%s, %s: %v", what, side, err)
				}
			}
		}
	}
}

// What is no client is told of and does not keep the server from its client.
func TestStrangers(t *testing.T) {
	for name, says := range map[string]string{
		"nothing":        "",
		"no JSON":        "GET / HTTP/1.1\r\n\r\n",
		"another kind":   `{"kind":"spec","body":{}}` + "\n",
		"no text":        `{"kind":"hello","body":{"version":"1","protocol":1,"provider":"","tool":"x"}}` + "\n",
		"too long":       strings.Repeat("x", 2*MaxMessage),
		"not an object":  `{"kind":"hello","body":7}` + "\n",
		"half a message": `{"kind":"hel`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, ln := within(t), listen(t)
			told := make(chan error, 1)
			done := make(chan outcome)
			go func() {
				l, err := Accept(ctx, ln, usual, func(err error) { told <- err })
				done <- outcome{l, err}
			}()
			conn, err := net.Dial("tcp", ln.Addr().String())
			must(t, err)
			// It may be refused before all of it was said.
			_, _ = io.WriteString(conn, says)
			_ = conn.(*net.TCPConn).CloseWrite()
			if err := <-told; err == nil || !strings.Contains(err.Error(), conn.LocalAddr().String()) {
				t.Errorf("it is told: %v", err)
			}
			must(t, conn.Close())
			c, err := Dial(ctx, ln.Addr().String(), usual)
			must(t, err)
			s := <-done
			must(t, errors.Join(s.err, c.Close(), s.l.Close()))
		})
	}
}

// Connections that say nothing, such as those of a scanner, keep no client waiting, however many they are, and end with the wait.
func TestSilentStrangers(t *testing.T) {
	ctx, ln := within(t), listen(t)
	displaced := make(chan error, mostSilent+1)
	done := make(chan outcome)
	go func() {
		l, err := Accept(ctx, ln, usual, func(err error) { displaced <- err })
		done <- outcome{l, err}
	}()
	var silent []net.Conn
	for range mostSilent + 1 {
		conn, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		silent = append(silent, conn)
	}
	if err := <-displaced; !errors.Is(err, errDisplaced) || !strings.Contains(err.Error(), silent[0].LocalAddr().String()) {
		t.Errorf("one too many: %v", err)
	}
	begun := time.Now()
	c, err := Dial(ctx, ln.Addr().String(), usual)
	must(t, err)
	s := <-done
	must(t, s.err)
	if took := time.Since(begun); took > greetingTime/3 {
		t.Errorf("the client has waited for %v", took)
	}
	for _, conn := range silent {
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("one that has said nothing is told something")
		}
		must(t, conn.Close())
	}
	if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Errorf("somebody could come after the client: %v", conn.Close())
	}
	must(t, s.l.Send("question", number{1}))
	must(t, c.Receive(ctx, "question", &number{}))
	must(t, errors.Join(c.Close(), s.l.Close()))
}

// Of clients that come at once one is served, and the others learn that they are not.
func TestOneClient(t *testing.T) {
	ctx, ln := within(t), listen(t)
	const clients = 20
	dialed := make(chan outcome, clients)
	for range clients {
		go func() {
			l, err := Dial(ctx, ln.Addr().String(), usual)
			dialed <- outcome{l, err}
		}()
	}
	s, err := Accept(ctx, ln, usual, func(err error) { t.Errorf("a client is a stranger: %v", err) })
	must(t, err)
	served := 0
	for range clients {
		if c := <-dialed; c.err == nil {
			served++
			must(t, s.Send("question", number{1}))
			must(t, errors.Join(c.l.Receive(ctx, "question", &number{}), c.l.Close()))
		}
	}
	if served != 1 {
		t.Errorf("%d clients were greeted", served)
	}
	must(t, s.Close())
}

func TestAcceptEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	ln := listen(t)
	done := make(chan error)
	go func() {
		_, err := Accept(ctx, ln, usual, nil)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The end of one side reaches the other: whoever waits, asks, or has asked to be told.
func TestLost(t *testing.T) {
	s, c := pair(t)
	told := make(chan struct{}, 8)
	s.Notify(func() { told <- struct{}{} })
	waiting := make(chan error)
	go func() { waiting <- s.Receive(within(t), "question", &number{}) }()
	must(t, c.Close())
	if err := <-waiting; !errors.Is(err, ErrLost) {
		t.Errorf("who waits: %v", err)
	}
	<-told
	<-s.Context().Done()
	if !s.News() || !errors.Is(s.Err(), ErrLost) || !errors.Is(s.Verdict(0), ErrLost) || !errors.Is(s.Send("x", 1), ErrLost) {
		t.Errorf("afterwards: %v", s.Err())
	}
}

// A side that gives up says why, and the other one has its words.
func TestFail(t *testing.T) {
	s, c := pair(t)
	done := make(chan struct{})
	go func() {
		s.Fail(errors.New("no such page"), true)
		must(t, s.Close())
		close(done)
	}()
	var refused *RefusedError
	if err := c.Receive(within(t), "answer", &number{}); !errors.As(err, &refused) || refused.Reason != "no such page" || !refused.Input {
		t.Errorf("%v", err)
	}
	must(t, c.Close())
	<-done
}

// A side that only talks does not fill the other's memory.
func TestFlood(t *testing.T) {
	s, c := pair(t)
	for range 10 * backlog {
		if c.Send("question", number{}) != nil {
			break
		}
	}
	<-s.Context().Done()
	var broken *ProtocolError
	if !errors.As(s.Err(), &broken) {
		t.Errorf("%v", s.Err())
	}
}

func TestMessageForm(t *testing.T) {
	for _, bad := range []string{"", "null", "[]", "{}", `{"kind":""}`, `{"kind":"Upper"}`, `{"kind":"a b"}`, `{"kind":"a","more":1}`, `{"kind":"a"}{}`,
		`{"kind":"` + strings.Repeat("a", maxKind+1) + `"}`} {
		var broken *ProtocolError
		if m, err := decode([]byte(bad)); !errors.As(err, &broken) {
			t.Errorf("%q: %+v, %v", bad, m, err)
		}
	}
	line, err := encode("a", number{7})
	must(t, err)
	m, err := decode(line[:len(line)-1])
	must(t, err)
	var n number
	if err := m.into(&n); err != nil || n.N != 7 || m.Kind != "a" {
		t.Errorf("%+v, %v, %v", m, n, err)
	}
}

// FuzzDecode: whatever comes, it is refused or a message that can be sent again as it is, and
// a greeting in it is checked.
func FuzzDecode(f *testing.F) {
	for _, seed := range []any{usual, number{1}, RefusedError{Reason: "x"}, nil, []int{1}} {
		line, err := encode("hello", seed)
		must(f, err)
		f.Add(line[:len(line)-1])
	}
	f.Add([]byte(`{"kind":"hello","body":{"version":"1","protocol":1,"provider":"tcp","tool":"x","new":[]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := decode(line)
		var broken *ProtocolError
		if err != nil {
			if !errors.As(err, &broken) {
				t.Fatalf("an error of another type: %v", err)
			}
			return
		}
		again, err := encode(m.Kind, m.Body)
		if err != nil {
			return // it may have been just short enough
		}
		same, err := decode(again[:len(again)-1])
		if err != nil || same.Kind != m.Kind {
			t.Fatalf("%q, %v", same.Kind, err)
		}
		var g Greeting
		if m.into(&g) == nil && g.check() == nil && (g.Provider == "" || len(g.Tool) > maxName) {
			t.Fatalf("a greeting that is none: %+v", g)
		}
	})
}
