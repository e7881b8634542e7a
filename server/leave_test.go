package server_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/slots"
)

// scriptedCore is a core as servers know it. inline is called while it is told of a method, and left is closed by Leave.
type scriptedCore struct {
	inline func()
	left   chan struct{}
	// told is what its agent would call.
	told atomic.Bool
}

func (c *scriptedCore) Inline(_ string, _ int, _ uint32, serve func(slots.Hint)) error {
	c.inline()
	c.told.Store(serve != nil)
	return nil
}

func (c *scriptedCore) Leave(string, int) {
	c.told.Store(false)
	close(c.left)
}

func (c *scriptedCore) Stops() bool { return true }

// A server that closes beside Handle leaves the agent nothing to call: its rings are unmapped next.
func TestHandleBesideClose(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	core := &scriptedCore{left: make(chan struct{})}
	s, err := server.Attach(wire.Within(t.Context(), core, b.Socket), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	core.inline = func() {
		go func() { closed <- s.Close() }()
		select {
		case <-core.left:
			t.Error("Close has told the agent to forget what Handle is about to tell it")
		case <-time.After(20 * time.Millisecond): // nothing tells that nothing happens
		}
	}
	reply := func(c *server.Call) error { return c.Reply(nil) }
	if err := s.Handle("t", "inline", reply, server.Inline()); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if core.told.Load() {
		t.Error("the agent goes on calling a server that is closed")
	}
	if err := s.Handle("t", "late", reply, server.Inline()); !errors.Is(err, server.ErrClosed) {
		t.Errorf("Handle after Close: %v", err)
	}
}
