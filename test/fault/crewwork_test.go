//go:build faultpoints

package fault

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/slots"
)

// What the services of a crew do, and what its callers want of them.

// largeSize is a message that fits no run.
const largeSize = 20 << 10

// offer serves on a node until the crew stops.
func (c *crew) offer(t *testing.T, n *daemontest.Node) {
	s, err := server.Attach(t.Context(), n.Socket, server.Workers(8))
	if err != nil {
		t.Fatal(err)
	}
	id := func(call *server.Call) uint64 {
		id := binary.LittleEndian.Uint64(call.Request())
		c.mu.Lock()
		defer c.mu.Unlock()
		c.executed[id]++
		return id
	}
	do := func(call *server.Call) error { return call.Reply(binary.LittleEndian.AppendUint64(nil, id(call))) }
	seq := func(call *server.Call) error {
		key, mine := binary.LittleEndian.Uint64(call.Request()[8:]), id(call)
		c.mu.Lock()
		last := c.orders[key]
		c.orders[key] = mine
		c.mu.Unlock()
		if mine <= last {
			c.problem("order %d: request %#x came after %#x", key, mine, last)
		}
		return call.Reply(binary.LittleEndian.AppendUint64(nil, mine))
	}
	echo := func(call *server.Call) error {
		id(call)
		return call.Reply(call.Request())
	}
	fill := func(call *server.Call) error {
		mine := id(call)
		if _, err := call.Region(0).WriteAt(call.Request()[:8], 0); err != nil {
			return err
		}
		return call.Reply(binary.LittleEndian.AppendUint64(nil, mine))
	}
	err = errors.Join(
		s.Handle("t", "do", do, server.AnswerSize(8)), s.Handle("t", "seq", seq, server.AnswerSize(8)),
		s.Handle("t", "echo", echo, server.AnswerLikeRequest()), s.Handle("t", "fill", fill, server.AnswerSize(8)))
	if err != nil {
		t.Fatal(err)
	}
	// Handlers that end with their callers, one at a time.
	wait, err := server.Attach(t.Context(), n.Socket, server.Workers(1))
	if err == nil {
		err = wait.Handle("t", "wait", func(call *server.Call) error {
			<-call.Context().Done()
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*server.Server{s, wait} {
		c.serve = append(c.serve, s)
		c.served.Go(func() {
			if err := s.Serve(context.Background()); !c.over() {
				c.problem("the service at %s has ended: %v", n.Name, err)
			}
		})
	}
}

// request makes a request of k slots of the smallest class.
func (c *crew) request(k int) (id uint64, req []byte) {
	id = c.ids.Add(1)
	req = make([]byte, k*slotSize-slots.HeaderSize)
	binary.LittleEndian.PutUint64(req, id)
	return id, req
}

// note writes down how a request ended.
func (c *crew) note(id uint64, answer []byte, err error) {
	how := outcome(id, answer, err)
	if how != "answered" {
		how = fmt.Sprintf("%s: %v", how, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[id] = how
}

// calls makes a call, or sends a one-way message.
func (c *crew) calls(ctx context.Context, m *client.Method, n int) {
	id, req := c.request(1 + n%8)
	if n%4 != 0 {
		answer, err := m.Call(ctx, req)
		c.note(id, answer, err)
		return
	}
	if err := m.Post(ctx, req); err != nil {
		c.problem("message %#x was not accepted: %v", id, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posted[id] = true
}

// idle makes a call and does not look at its answer before the daemon has moved it.
func (c *crew) idle(ctx context.Context, m *client.Method) {
	id, req := c.request(1)
	f, err := m.Go(ctx, req)
	if err != nil {
		c.problem("request %#x was not accepted: %v", id, err)
		return
	}
	select {
	case <-time.After(4 * spillAfter):
	case <-c.quit:
	}
	answer, err := f.Wait(ctx)
	c.note(id, answer, err)
}

// burst makes some requests at once.
func (c *crew) burst(ctx context.Context, m *client.Method, n int) {
	var ids [4]uint64
	var futures [4]*client.Future
	for i := range futures {
		var req []byte
		var err error
		ids[i], req = c.request(1 + (n+i)%8)
		if futures[i], err = m.Go(ctx, req); err != nil {
			c.problem("request %#x was not accepted: %v", ids[i], err)
		}
	}
	for i, f := range futures {
		if f != nil {
			answer, err := f.Wait(ctx)
			c.note(ids[i], answer, err)
		}
	}
}

// ordered makes requests of an order, of which each is sent before the one before has
// been answered.
func (c *crew) ordered(ctx context.Context, m *client.Method, key uint64) {
	var ids [4]uint64
	var futures [4]*client.Future
	for i := range futures {
		var req []byte
		var err error
		ids[i], req = c.request(1)
		binary.LittleEndian.PutUint64(req[8:], key)
		if futures[i], err = m.Go(ctx, req); err != nil {
			c.problem("request %#x was not accepted: %v", ids[i], err)
		}
	}
	for i, f := range futures {
		if f != nil {
			answer, err := f.Wait(ctx)
			c.note(ids[i], answer, err)
		}
	}
}

// large makes a call whose request and answer fit no run.
func (c *crew) large(ctx context.Context, m *client.Method, n int) {
	id, req := c.request(largeSize / slotSize)
	for i := 8; i < len(req); i++ {
		req[i] = byte(n + i)
	}
	answer, err := m.Call(ctx, req)
	if err == nil && !bytes.Equal(answer, req) {
		err = errWrong
	}
	c.note(id, answer[:min(8, len(answer))], err)
}

// fill makes a call whose handler writes into the caller's memory. Only an operation that
// the dead core had begun may be lost, of which the handler hears.
func (c *crew) fill(ctx context.Context, m *client.Method, r *client.Region) {
	id, req := c.request(1)
	ref, err := r.Ref(0, 8, client.MayWrite)
	if err != nil {
		c.problem("a reference: %v", err)
		return
	}
	answer, err := m.CallRegions(ctx, req[:8], ref)
	if remote := new(client.RemoteError); errors.As(err, &remote) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended[id] = "lost operation"
		return
	}
	if got := binary.LittleEndian.Uint64(r.Bytes()); err == nil && got != id {
		err = fmt.Errorf("%w: the region has %#x", errWrong, got)
	}
	c.note(id, answer, err)
}

// newcomer attaches, makes a call and goes.
func (c *crew) newcomer(ctx context.Context, home *daemontest.Node, to string) {
	conn, err := client.Attach(ctx, home.Socket)
	if errors.Is(err, client.ErrClosed) {
		c.refused.Add(1)
		return // it was nobody's yet, and may try again
	}
	if err != nil {
		c.problem("attach to %s: %v", home.Name, err)
		return
	}
	id, req := c.request(2)
	answer, err := conn.Call(ctx, to+"/t/do", req)
	c.note(id, answer, err)
	if err := conn.Close(); err != nil {
		c.problem("close of a newcomer: %v", err)
	}
}
