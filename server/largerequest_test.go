package server

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// A request is complete when each of its bytes has come, not when as many bytes have.
func TestPartsThatComeTwice(t *testing.T) {
	r := &largeRequest{}
	r.begin(make([]byte, 100), 40)
	for _, twice := range [][2]uint64{{0, 10}, {39, 2}, {30, 70}} {
		if r.reserve(twice[0], uint32(twice[1])) != nil {
			t.Errorf("%d bytes from %d on are taken again", twice[1], twice[0])
		}
	}
	if len(r.reserve(70, 30)) != 30 || r.reserve(60, 20) != nil {
		t.Fatal("a part is not what is on its way")
	}
	r.arrived(30)
	if len(r.reserve(40, 30)) != 30 {
		t.Fatal("no room for what is missing")
	}
	if _, ok := r.take(); ok {
		t.Error("complete while a part is on its way")
	}
	r.failed(40, 30)
	if _, ok := r.take(); ok {
		t.Error("complete without a part that has failed")
	}
	for at := uint64(40); at < 70; at += 10 {
		if len(r.reserve(at, 10)) != 10 {
			t.Fatalf("10 bytes from %d on cannot be sent again", at)
		}
		r.arrived(10)
	}
	if _, ok := r.take(); !ok {
		t.Error("not complete")
	}
	if r.reserve(0, 0) != nil {
		t.Error("a part is taken that comes when the handler has the request")
	}
}

// What a handler has counts until it returns, also when its caller is not heard of any more.
func TestLargeMessagesCountWhileTheirHandlersRun(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := Attach(t.Context(), b.Socket, LargeMessages(4<<20))
	if err != nil {
		t.Fatal(err)
	}
	x := &s.exchanges
	inside, goOn := make(chan struct{}, 2), make(chan struct{})
	err = s.Handle("t", "large", func(c *Call) error {
		x.mu.Lock()
		var mine []*serverExchange
		for _, e := range x.open {
			mine = append(mine, e)
		}
		x.mu.Unlock()
		for _, e := range mine {
			letLeasePass(x, e)
			x.expire(e)
		}
		inside <- struct{}{}
		<-goOn
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- s.Serve(context.Background()) }()
	conn, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	var m *client.Method
	daemontest.Eventually(t, "look up", func() (err error) {
		m, err = conn.Method(t.Context(), "b/t/large")
		return err
	})
	msg := make([]byte, 3<<20)
	first, err := m.Go(t.Context(), msg)
	if err != nil {
		t.Fatal(err)
	}
	<-inside
	if _, err := m.Call(t.Context(), msg); !errors.Is(err, client.ErrNotExecuted) {
		t.Errorf("a second request, for which there is no room: %v", err)
	}
	close(goOn)
	if _, err := first.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := m.Call(t.Context(), msg); err != nil {
		t.Errorf("when there is room: %v", err)
	}
	if err := errors.Join(conn.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	<-over
	if x.bytes != 0 {
		t.Errorf("%d bytes are counted of nothing", x.bytes)
	}
}
