package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A request is the caller's again when the function that sends it has returned, whether
// its handler has started or not, and whether it goes in slots or in parts.
func TestRequestsAreCopied(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle, "look": func(c *server.Call) error {
		if req := c.Request(); !bytes.Equal(req, bytes.Repeat([]byte("x"), len(req))) {
			return errors.New("the request was changed")
		}
		return c.Reply(c.Request())
	}})
	c := attach(t, a)
	m := method(t, c, "b/t/look")
	gate := outstanding(t, method(t, c, "b/t/gate"), 1) // the only worker is busy
	<-g.entered
	type sent struct {
		what   string
		f      *client.Future
		n      int
		answer bool
	}
	var all []sent
	q := c.NewQueue()
	for _, n := range []int{100, 3 << 20} {
		buf := make([]byte, n)
		keep := func(what string, answer bool, send func() (*client.Future, error)) {
			t.Helper()
			copy(buf, bytes.Repeat([]byte("x"), n))
			f, err := send()
			if err != nil {
				t.Errorf("%s of %d bytes: %v", what, n, err)
				return
			}
			clear(buf)
			if f != nil {
				all = append(all, sent{what, f, n, answer})
			}
		}
		keep("Go", true, func() (*client.Future, error) { return m.Go(t.Context(), buf) })
		keep("GoInto", true, func() (*client.Future, error) { return m.GoInto(t.Context(), buf, make([]byte, 0, n)) })
		keep("GoTo", true, func() (*client.Future, error) { return nil, m.GoTo(t.Context(), q, buf, uint64(n)) })
		keep("Post", false, func() (*client.Future, error) { return nil, m.Post(t.Context(), buf) })
		keep("PostConfirmed", false, func() (*client.Future, error) { return m.PostConfirmed(t.Context(), buf) })
		keep("PostTo", false, func() (*client.Future, error) { return nil, m.PostTo(t.Context(), q, buf, 0) })
	}
	g.Open()
	for _, s := range append(all, sent{"the gate", gate[0], len("ok"), true}) {
		got, err := s.f.Wait(t.Context())
		if err != nil || s.answer && len(got) != s.n || !s.answer && got != nil {
			t.Errorf("%s of %d bytes: %d bytes, %v", s.what, s.n, len(got), err)
		}
	}
	for tag, r := range q.All(t.Context()) {
		if r.Err != nil || uint64(len(r.Answer)) != tag {
			t.Errorf("tag %d: %d bytes, %v", tag, len(r.Answer), r.Err)
		}
	}
	daemontest.Eventually(t, "posted", func() error {
		if n := counter(t, a, "oneway_done"); n != 2 {
			return fmt.Errorf("%d messages done", n)
		}
		return nil
	})
	quiet(t, a, b)
}

// A buffer for the answer is used if it has room, also when it is the request's memory,
// and is left alone otherwise.
func TestBuffersForAnswers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	m := method(t, attach(t, a), "b/t/echo")
	for _, n := range []int{100, 5000, 3 << 20} {
		want := pattern(n, 1)
		for what, call := range map[string]func(req, dst []byte) ([]byte, error){
			"CallInto": func(req, dst []byte) ([]byte, error) { return m.CallInto(t.Context(), req, dst) },
			"GoInto": func(req, dst []byte) ([]byte, error) {
				f, err := m.GoInto(t.Context(), req, dst)
				if err != nil {
					return nil, err
				}
				return f.Wait(t.Context())
			},
		} {
			same := bytes.Clone(want)
			got, err := call(same, same)
			if err != nil || !bytes.Equal(got, want) || &got[0] != &same[0] {
				t.Errorf("%s of %d bytes into the request: %d bytes, %v", what, n, len(got), err)
			}
			small := make([]byte, 50)
			got, err = call(want, small)
			if err != nil || !bytes.Equal(got, want) || !bytes.Equal(small, make([]byte, 50)) {
				t.Errorf("%s of %d bytes into 50: %d bytes, %v", what, n, len(got), err)
			}
		}
	}
	quiet(t, a, b)
}

// The request and the answer of a handler are the same slots, unless one of them does
// not fit: a request that came in parts stays as it was, and an answer that does not fit
// has memory of its own.
func TestBytesOfHandlers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b, 1, handlers{"look": func(c *server.Call) error {
		req := c.Request()
		where := place(t, req)
		answer := c.Answer(40)
		own := c.Answer(2000) // room for 64 was asked for
		clear(answer)
		if place(t, answer) != "slots" || place(t, own) != "own" {
			return fmt.Errorf("answers in %s and %s", place(t, answer), place(t, own))
		}
		return c.Reply(fmt.Append(nil, where, " ", req[0]))
	}})
	m := method(t, attach(t, a), "b/t/look")
	for n, want := range map[int]string{100: "slots 0", 3 << 20: "region 120"} {
		if got, err := m.Call(t.Context(), bytes.Repeat([]byte("x"), n)); err != nil || string(got) != want {
			t.Errorf("%d bytes: %q, %v, want %q", n, got, err, want)
		}
	}
	quiet(t, a, b)
}

// Messages of streams are copied by Send, and Recv gives each a slice of its own, on both
// sides. What the handler has not taken when it returns is dropped.
func TestStreamBytes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serveStreams(t, b, streams{"two": func(s *server.Stream) error {
		one, err1 := s.Recv()
		two, err2 := s.Recv()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if err := errors.Join(s.Send(one), s.Send(two)); err != nil {
			return err
		}
		clear(one)
		clear(two)
		return nil
	}})
	for _, n := range []int{1, 1000, 300_000} {
		s := open(t, attach(t, a), "b/t/two")
		msg := make([]byte, n)
		for k := range uint64(3) {
			copy(msg, pattern(n, k))
			// The handler may have returned before the third comes, which is io.EOF.
			if err := s.Send(t.Context(), msg); err != nil && k < 2 {
				t.Error(err)
			}
			clear(msg)
		}
		one, err1 := s.Recv(t.Context())
		two, err2 := s.Recv(t.Context())
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(one, pattern(n, 0)) || !bytes.Equal(two, pattern(n, 1)) {
			t.Errorf("messages of %d bytes: %d and %d, %v", n, len(one), len(two), err)
		}
		if msg, err := s.Recv(t.Context()); len(msg) > 0 || err != io.EOF {
			t.Errorf("at the end: %d bytes, %v", len(msg), err)
		}
	}
	quiet(t, a, b)
}
