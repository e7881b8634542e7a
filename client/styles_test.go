package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// runMoody is a service process: t/work says "work" and the request on the standard output,
// and then never returns, if the second argument is "stuck", or answers with the first one
// and the request, or with a large answer if that says "large".
func runMoody(args []string) error {
	name, mode := args[1], args[2]
	s, err := server.Attach(context.Background(), args[0], server.Workers(1))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Handle("t", "work", func(c *server.Call) error {
		fmt.Printf("work %.40s\n", c.Request())
		switch {
		case mode == "stuck":
			return daemontest.Stay()
		case bytes.HasPrefix(c.Request(), []byte("large")):
			return c.Reply(bytes.Repeat([]byte(name), largeAnswer))
		}
		return c.Reply(fmt.Appendf(nil, "%s %.40s", name, c.Request()))
	}, server.AnswerSize(64)); err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Serve(context.Background())
}

// largeAnswer is how often t/work repeats its name in a large answer.
const largeAnswer = 200_000

// callStyle is a way to send a request and to wait for its outcome.
type callStyle struct {
	name string
	// again: the method may have client.Idempotent.
	again bool
	// bare: there is no answer.
	bare bool
	// waits: the context of the call bounds the wait for the outcome.
	waits bool
	// do sends msg, of which nothing is left when it has been sent, if the style copies.
	do func(ctx context.Context, c *client.Conn, m *client.Method, msg []byte) ([]byte, error)
}

func await(ctx context.Context, f *client.Future, err error, msg []byte) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	clear(msg)
	return f.Wait(ctx)
}

// awaitQueue waits for the only outcome of a queue.
func awaitQueue(q *client.Queue, err error, msg []byte) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	clear(msg)
	for _, r := range q.All(context.Background()) {
		return r.Answer, r.Err
	}
	return nil, errors.New("nothing in the queue")
}

func released(a client.Answer, err error) ([]byte, error) {
	defer a.Release()
	return bytes.Clone(a.Bytes()), err
}

// reserved writes a request in place.
func reserved(ctx context.Context, m *client.Method, msg []byte) (*client.Request, error) {
	r, err := m.Reserve(ctx, len(msg))
	if err == nil {
		copy(r.Bytes(), msg)
	}
	return r, err
}

// callStyles are all ways but streams.
var callStyles = []callStyle{
	{"Call", true, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		return m.Call(ctx, msg)
	}},
	{"CallInto", true, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		return m.CallInto(ctx, msg, msg)
	}},
	{"CallFunc", true, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) (got []byte, err error) {
		err = m.CallFunc(ctx, msg, func(answer []byte) error {
			got = bytes.Clone(answer)
			return nil
		})
		return got, err
	}},
	{"CallInPlace", true, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		return released(m.CallInPlace(ctx, msg))
	}},
	{"CallBatch", true, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		results, err := m.CallBatch(ctx, [][]byte{msg})
		if err != nil {
			return nil, err
		}
		return results[0].Answer, results[0].Err
	}},
	{"Go", true, false, false, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		f, err := m.Go(ctx, msg)
		return await(ctx, f, err, msg)
	}},
	{"GoInto", true, false, false, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		f, err := m.GoInto(ctx, msg, make([]byte, 0, 100))
		return await(ctx, f, err, msg)
	}},
	{"GoInPlace", false, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		p, err := m.GoInPlace(ctx, msg)
		if err != nil {
			return nil, err
		}
		clear(msg)
		return released(p.Wait(ctx))
	}},
	{"GoTo", true, false, false, func(ctx context.Context, c *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		q := c.NewQueue()
		return awaitQueue(q, m.GoTo(ctx, q, msg, 1), msg)
	}},
	{"PostConfirmed", true, true, false, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		f, err := m.PostConfirmed(ctx, msg)
		return await(ctx, f, err, msg)
	}},
	{"PostTo", true, true, false, func(ctx context.Context, c *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		q := c.NewQueue()
		return awaitQueue(q, m.PostTo(ctx, q, msg, 1), msg)
	}},
	{"Commit", false, false, false, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		r, err := reserved(ctx, m, msg)
		if err != nil {
			return nil, err
		}
		f, err := r.Commit()
		return await(ctx, f, err, msg)
	}},
	{"Request.CallInPlace", false, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		r, err := reserved(ctx, m, msg)
		if err != nil {
			return nil, err
		}
		return released(r.CallInPlace(ctx))
	}},
	{"CallRegions", false, false, true, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		return m.CallRegions(ctx, msg)
	}},
	{"GoRegions", false, false, false, func(ctx context.Context, _ *client.Conn, m *client.Method, msg []byte) ([]byte, error) {
		f, err := m.GoRegions(ctx, msg)
		return await(ctx, f, err, msg)
	}},
}

// outcome is how a request in some style has ended.
type outcome struct {
	style  callStyle
	answer []byte
	err    error
}

// sendEach sends a request in each of the styles, at the same time, which says the style's
// name behind what. The channel gets the outcomes.
func sendEach(ctx context.Context, c *client.Conn, m *client.Method, what string, styles []callStyle) <-chan outcome {
	ends := make(chan outcome, len(styles))
	for _, s := range styles {
		go func() {
			answer, err := s.do(ctx, c, m, []byte(what+s.name))
			ends <- outcome{s, answer, err}
		}()
	}
	return ends
}

// collect waits for n outcomes.
func collect(t *testing.T, n int, ends <-chan outcome) (all []outcome) {
	t.Helper()
	within(t, "outcomes", func() {
		for range n {
			all = append(all, <-ends)
		}
	})
	return all
}

// answered waits until node n has got so many answers from another one.
func answered(t *testing.T, n *daemontest.Node, answers uint64) {
	t.Helper()
	daemontest.Eventually(t, "answers at node "+n.Name, func() error {
		if got := counter(t, n, "answers_received"); got < answers {
			return fmt.Errorf("%d of %d", got, answers)
		}
		return nil
	})
}

// received waits until node n has got so many requests since it counted before.
func received(t *testing.T, n *daemontest.Node, before uint64, more int) {
	t.Helper()
	daemontest.Eventually(t, "requests at node "+n.Name, func() error {
		if got := counter(t, n, "requests_received") - before; got < uint64(more) {
			return fmt.Errorf("%d of %d", got, more)
		}
		return nil
	})
}
