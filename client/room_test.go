package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// A process that has as many one-way messages in a ring as it may is woken when half of them are
// done: by nothing else here, because it has no answers to wait for and does not look by itself.
func TestPostsAtALimitAreWoken(t *testing.T) {
	const each = 3000
	for _, c := range []struct {
		name, config string
		processes    int
	}{
		{"the quota of a process", tiny + "[limits]\nworker_slots=25\n", 1},
		{"the quota of bytes", tiny + "[limits]\nworker_bytes=2048\n", 1},
		{"a full ring", tiny, 1},
		{"shares of a ring", tiny, 4},
	} {
		for _, where := range []string{"another node", "this node"} {
			t.Run(c.name+", "+where, func(t *testing.T) {
				a, b := daemontest.Pair(t, c.config)
				target, node := "b/t/post", b
				if where == "this node" {
					target, node = "a/t/post", a
				}
				var done atomic.Int64
				serve(t, node, 1, handlers{"post": func(*server.Call) error { done.Add(1); return nil }})
				ended := make(chan error, c.processes)
				for range c.processes {
					conn := attach(t, a)
					m := method(t, conn, target)
					client.SleepForRoomUntilWoken(conn)
					go func() { ended <- posts(m, each) }()
				}
				for range c.processes {
					select {
					case err := <-ended:
						if err != nil {
							t.Fatal(err)
						}
					case <-time.After(time.Minute):
						t.Fatalf("%d of %d messages are done, and somebody waits for room who was not woken", done.Load(), each*c.processes)
					}
				}
			})
		}
	}
}

func posts(m *client.Method, n int) error {
	for range n {
		if err := m.Post(context.Background(), []byte("a message without an answer")); err != nil {
			return err
		}
	}
	return nil
}
