package client_test

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/client"
	protocol "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// A stream whose message could not be sent, because the node was out of service for a moment, ends
// with an error: it does not go on as if nothing had been sent.
func TestStreamOutlivesNoDrain(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serveStreams(t, a, streams{"echo": echoStream})
	c := attachTo(t, a)
	s := open(t, c, "a/t/echo")
	if err := s.Send(t.Context(), []byte("one")); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(t.Context()); err != nil || string(m) != "one" {
		t.Fatal(m, err)
	}
	tool, err := protocol.Open(t.Context(), a.Socket, protocol.Hello{Role: protocol.RoleTool, Name: "drain"}, protocol.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Close()
	drain := func(resume bool) {
		t.Helper()
		if _, err := tool.Ask(t.Context(), &protocol.Message{Type: protocol.TypeDrain, Drain: &protocol.Drain{Resume: resume}}); err != nil {
			t.Fatal(err)
		}
	}
	drain(false)
	if err := s.Send(t.Context(), []byte("two")); err != nil {
		t.Fatal(err) // it does not wait until it is sent
	}
	daemontest.Eventually(t, "the message is not sent", func() error {
		if !client.Unsent(s) {
			return errors.New("nothing has failed")
		}
		return nil
	})
	drain(true)
	within(t, "the end of the stream", func() {
		if m, err := s.Recv(t.Context()); !is(err, false, true) {
			t.Errorf("%q, %v", m, err)
		}
	})
	again := open(t, c, "a/t/echo")
	if err := again.Send(t.Context(), []byte("four")); err != nil {
		t.Error(err)
	}
	if m, err := again.Recv(t.Context()); err != nil || string(m) != "four" {
		t.Errorf("the next stream: %q, %v", m, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	quiet(t, a, b)
}
