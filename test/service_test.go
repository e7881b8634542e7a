package test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/server"
)

// tally is what a service has counted.
type tally struct {
	Calls, Posts int64
	// Sum is the sum of the digests of all posts.
	Sum uint64
}

// work is the service of the tests.
type work struct {
	calls, posts, hanging atomic.Int64
	sum                   atomic.Uint64
}

// serviceRole offers the methods below until it is told to end. It says its
// process id when callers can find it, and its tally at the end.
func serviceRole(ctx context.Context, args *roleArgs, say *json.Encoder) (err error) {
	s, err := server.Attach(ctx, args.Socket, server.Workers(args.Handlers))
	if err != nil {
		return err
	}
	w := new(work)
	for method, h := range map[string]server.Handler{
		"transform": w.transform, "flip": w.flip, "post": w.post, "who": w.who, "sleep": w.sleep,
		"hang": w.hang, "hanging": w.countHanging, "fail": w.fail, "panic": w.panic,
	} {
		if err := s.Handle(args.Service, method, h); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	if err := s.HandleStream(args.Service, "stream", w.stream); err != nil {
		return errors.Join(err, s.Close())
	}
	if err := say.Encode(os.Getpid()); err != nil {
		return err
	}
	err = s.Serve(ctx)
	return errors.Join(err, s.Close(), say.Encode(tally{w.calls.Load(), w.posts.Load(), w.sum.Load()}))
}

// startService starts a service process on a node and waits until it serves.
func startService(t *testing.T, c *cluster, node, service string) *member {
	t.Helper()
	m := startMember(t, "service", roleArgs{Socket: c.socket(node), Service: service, Handlers: 16})
	var pid int
	m.hear(&pid)
	return m
}

// holding is a service in the test's process whose requests are all under way until they
// are let go: no time is long enough for that everywhere.
type holding struct {
	letGo func()
	// begun counts the requests that a handler has.
	begun atomic.Int64
}

// holdRequests offers "held/hold" on a node. Its requests are let go when the test ends, at the latest.
func holdRequests(t *testing.T, c *cluster, node string, handlers int) *holding {
	t.Helper()
	gate := make(chan struct{})
	h := &holding{letGo: sync.OnceFunc(func() { close(gate) })}
	s, err := server.Attach(bounded(t), c.socket(node), server.Workers(handlers), server.Name("holding"))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Handle("held", "hold", func(c *server.Call) error {
		h.begun.Add(1)
		<-gate
		return number(c, 0)
	})
	if err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		h.letGo()
		_ = s.Close() // its node may have gone
		<-served
	})
	return h
}

// transform answers as content_test.go says.
func (w *work) transform(c *server.Call) error {
	size, sum := answerSize(c.Request()), digest(c.Request())
	if size < 0 {
		return fmt.Errorf("a request of %d bytes", len(c.Request()))
	}
	w.calls.Add(1)
	if answer := c.Answer(size); answer != nil {
		stream(answer, sum)
	}
	return nil
}

// flip answers with all bits of the request the other way round: quick to check, for
// large messages.
func (w *work) flip(c *server.Call) error {
	req := c.Request()
	answer := c.Answer(len(req))
	if len(answer) != len(req) {
		return fmt.Errorf("room for %d bytes of %d", len(answer), len(req))
	}
	n := len(req) / 8 * 8
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(answer[i:], ^binary.LittleEndian.Uint64(req[i:]))
	}
	for i := n; i < len(req); i++ {
		answer[i] = ^req[i]
	}
	w.calls.Add(1)
	return nil
}

// flipped reports whether an answer of flip is right.
func flipped(answer, req []byte) bool {
	if len(answer) != len(req) {
		return false
	}
	n := len(req) / 8 * 8
	for i := 0; i < n; i += 8 {
		if binary.LittleEndian.Uint64(answer[i:]) != ^binary.LittleEndian.Uint64(req[i:]) {
			return false
		}
	}
	for i := n; i < len(req); i++ {
		if answer[i] != ^req[i] {
			return false
		}
	}
	return true
}

// stream answers each message as transform does.
func (w *work) stream(s *server.Stream) error {
	for {
		msg, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer := make([]byte, max(0, answerSize(msg)))
		stream(answer, digest(msg))
		w.calls.Add(1)
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}

// post counts a one-way message.
func (w *work) post(c *server.Call) error {
	w.sum.Add(digest(c.Request()))
	w.posts.Add(1)
	return nil
}

// who answers with the process's id.
func (w *work) who(c *server.Call) error { return number(c, uint64(os.Getpid())) }

// sleep takes as many milliseconds as the request says.
func (w *work) sleep(c *server.Call) error {
	time.Sleep(time.Duration(binary.LittleEndian.Uint64(c.Request())) * time.Millisecond)
	w.calls.Add(1)
	return number(c, uint64(os.Getpid()))
}

// hang returns some time after its caller's deadline, or when its process ends.
func (w *work) hang(c *server.Call) error {
	w.hanging.Add(1)
	defer w.hanging.Add(-1)
	select {
	case <-c.Context().Done():
		time.Sleep(sleepMillis * time.Millisecond)
		return c.Context().Err()
	case <-time.After(limit):
		return errors.New("nobody ended it")
	}
}

// countHanging answers with how many calls of hang run.
func (w *work) countHanging(c *server.Call) error { return number(c, uint64(w.hanging.Load())) }

func (w *work) fail(c *server.Call) error { return fmt.Errorf("no: %s", c.Request()) }

func (w *work) panic(*server.Call) error { panic("on purpose") }

// number answers with a number.
func number(c *server.Call, n uint64) error {
	return c.Reply(binary.LittleEndian.AppendUint64(nil, n))
}

// encoded is a request that is a number.
func encoded(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
