package client_test

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// What a method is declared with anew reaches callers that have looked it up before.
func TestNewAnswerSize(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	s := serve(t, b, 1, nil)
	h := func(c *server.Call) error { return c.Reply(make([]byte, 100)) }
	if err := s.Handle("t", "x", h, server.AnswerSize(10)); err != nil {
		t.Fatal(err)
	}
	m := method(t, attachTo(t, b), "b/t/x").With(client.Direct())
	if _, err := m.Call(t.Context(), nil); !errors.Is(err, client.ErrTooLarge) {
		t.Fatal(err)
	}
	if err := s.Handle("t", "x", h, server.AnswerSize(100)); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "there is room for the answer", func() error { return second(m.Call(t.Context(), nil)) })
}

// Direct and Within take all of Split back, and nothing else.
func TestSplitTakenBack(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	serve(t, b, 1, nil)
	m := method(t, attachTo(t, b), "b/t/echo").With(client.Split())
	for name, v := range map[string]*client.Method{"direct": m.With(client.Direct()), "within": m.With(client.Within(100))} {
		if got, err := v.Call(t.Context(), []byte("ten bytes.")); err != nil || string(got) != "ten bytes." {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, v := range map[string]*client.Method{
		"before": method(t, attachTo(t, b), "b/t/echo").With(client.AnswerSize(50), client.Split(), client.Within(100)),
		"after":  m.With(client.Within(100), client.AnswerSize(50)), "at last": m.With(client.AnswerSize(50)).With(client.Direct()),
	} {
		if got, err := v.Call(t.Context(), make([]byte, 50)); err != nil || len(got) != 50 {
			t.Errorf("an answer size %s: %d bytes, %v", name, len(got), err)
		}
		if _, err := v.Call(t.Context(), make([]byte, 100)); name == "at last" && !errors.Is(err, client.ErrTooLarge) {
			t.Errorf("an answer size %s: more than that: %v", name, err)
		}
	}
}

// A new request makes a forgotten region known again, whichever function sends it.
func TestGoRegionsAfterForgotten(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	again := func() {
		serve(t, b, 1, handlers{"first": func(c *server.Call) error {
			if c.NumRegions() == 0 {
				return nil
			}
			_, err := c.Region(0).ReadAt(make([]byte, 1), 0)
			return err
		}})
	}
	again()
	c := attachTo(t, a)
	m := method(t, c, "b/t/first")
	r, err := c.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.Ref(0, 1, client.MayRead)
	if err != nil {
		t.Fatal(err)
	}
	try := func() error {
		f, err := m.GoRegions(t.Context(), nil, ref)
		if err == nil {
			_, err = f.Wait(t.Context())
		}
		return err
	}
	if err := errors.Join(try(), b.Crash(), b.Connected("a")); err != nil {
		t.Fatal(err)
	}
	again()
	daemontest.Eventually(t, "the route is the new one", func() error { return second(m.Call(t.Context(), nil)) })
	for range 99 {
		_ = try() // the first one at most is to find the region forgotten
	}
	if err := try(); err != nil {
		t.Errorf("the 100th request: %v", err)
	}
}
