package test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/server"
)

// When a process of a service is killed while large messages go to it and come from it,
// each of them has an outcome, and the next ones go to another process.
func TestKillServiceOfLargeMessage(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	conn := c.attach("a")
	const size = 32 << 20
	msg := make([]byte, size)
	stream(msg, 1)
	binary.LittleEndian.PutUint32(msg, size)
	sum := digest(msg)
	victim := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "transform", 0)
	m, err := conn.Method(bounded(t), "b/jobs/transform")
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]int{}
	for round := range 6 {
		next := startService(t, c, "b", "jobs")
		begin := time.Now()
		ended := make(chan error, 1)
		go func() {
			answer, err := m.Call(bounded(t), msg)
			if err == nil && !right(answer, size, sum) {
				err = errors.New("a wrong answer")
			}
			ended <- err
		}()
		if round > 0 {
			time.Sleep(time.Duration(round) * 15 * time.Millisecond) // the moment of the fault
		}
		if err := victim.kill(); err == nil {
			t.Error("the service ended by itself")
		}
		err := <-ended
		ends[outcome(err)]++
		t.Logf("round %d: %v after %v", round, err, time.Since(begin))
		if o := outcome(err); o == "other" {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		victim = next
	}
	t.Logf("outcomes: %v", ends)
	if answer, err := m.Call(bounded(t), msg); err != nil || !right(answer, size, sum) {
		t.Errorf("the process that is left: %v", err)
	}
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
}

// When the process of a stream's handler is killed, both directions of the stream end, and a new
// stream goes to another process.
func TestKillServiceOfStream(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	victim := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0)
	conn := c.attach("a")
	m, err := conn.Method(bounded(t), "b/jobs/stream")
	if err != nil {
		t.Fatal(err)
	}
	msg := make([]byte, 100)
	binary.LittleEndian.PutUint32(msg, 50)
	echo := func(s *client.Stream) error {
		if err := s.Send(bounded(t), msg); err != nil {
			return err
		}
		answer, err := s.Recv(bounded(t))
		if err == nil && !right(answer, 50, digest(msg)) {
			err = errors.New("a wrong answer")
		}
		return err
	}
	var streams []*client.Stream
	for range 10 {
		s, err := m.Stream(bounded(t))
		if err == nil {
			err = echo(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams = append(streams, s)
	}
	startService(t, c, "b", "jobs")
	c.awaitService("b", "b", "jobs", "stream", 2)
	if err := victim.kill(); err == nil {
		t.Error("the service ended by itself")
	}
	for i, s := range streams {
		if _, err := s.Recv(bounded(t)); !errors.Is(err, client.ErrMaybeExecuted) || errors.Is(err, client.ErrNotExecuted) {
			t.Errorf("stream %d: Recv: %v", i, err)
		}
		if err := s.Send(bounded(t), msg); !errors.Is(err, client.ErrMaybeExecuted) {
			t.Errorf("stream %d: Send: %v", i, err)
		}
	}
	s, err := m.Stream(bounded(t))
	if err == nil {
		err = errors.Join(echo(s), s.Close())
	}
	if err != nil {
		t.Errorf("the process that is left: %v", err)
	}
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
}

// streamingRole opens a stream and waits to be killed.
func streamingRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := conn.Stream(ctx, args.Node+"/"+args.Service+"/wait")
	if err != nil {
		return err
	}
	if _, err := s.Recv(ctx); err != nil {
		return err
	}
	if err := say.Encode("streaming"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// The handler of a stream whose caller was killed is told, and the slots are given back.
func TestStreamOfDeadCaller(t *testing.T) {
	c := newPair(t, sandbox.Settings{LinkHold: "1s"})
	s, err := server.Attach(t.Context(), c.socket("b"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	err = s.HandleStream("jobs", "wait", func(s *server.Stream) error {
		if err := s.Send([]byte("here")); err != nil {
			return err
		}
		<-s.Context().Done()
		ended <- context.Cause(s.Context())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	c.awaitService("a", "b", "jobs", "wait", 0)
	m := startMember(t, "streaming", roleArgs{Socket: c.socket("a"), Node: "b", Service: "jobs"})
	var said string
	m.hear(&said)
	if err := m.kill(); err == nil {
		t.Error("the caller ended by itself")
	}
	select {
	case err := <-ended:
		if !errors.Is(err, server.ErrGivenUp) {
			t.Errorf("the handler's context ended with %v", err)
		}
	case <-time.After(limit):
		t.Error("the handler was not told")
	}
	c.awaitQuiet("a", m.pid())
	c.awaitQuiet("b", 0)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-done
}
