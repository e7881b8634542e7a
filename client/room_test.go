package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/shm"
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
				serve(t, node, 1, handlers{"post": func(*server.Call) error { return nil }})
				ended := make(chan error, c.processes)
				for range c.processes {
					conn := attach(t, a)
					m := method(t, conn, target)
					client.SleepForRoomUntilWoken(conn)
					go func() { ended <- posts(m, each) }()
				}
				for range c.processes {
					isWoken(t, "a process", ended)
				}
			})
		}
	}
}

// woken does something that only others can end.
func woken(t *testing.T, what string, f func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	isWoken(t, what, ended)
}

func isWoken(t *testing.T, what string, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Fatalf("%s: somebody waits for room who was not woken", what)
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

// The same where each wait takes long, so that the process waits without a thread; and the end of a
// context ends such a wait, too.
func TestSlowPostsAtALimitAreWoken(t *testing.T) {
	a, b := daemontest.Pair(t, tiny+"[limits]\nworker_slots=25\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle, "post": func(*server.Call) error {
		time.Sleep(5 * time.Millisecond) // it has so much to do
		return nil
	}})
	conn := attach(t, a)
	m := method(t, conn, "b/t/post")
	client.SleepForRoomUntilWoken(conn)
	woken(t, "slow messages", func() error { return posts(m, 100) })
	stuck := method(t, conn, "b/t/gate")
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		woken(t, "by the end of its context", func() error {
			for {
				if err := stuck.Post(ctx, []byte("waits")); errors.Is(err, client.ErrDeadline) {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
		cancel()
	}
}

// The same where not half of what it may hold becomes free: most of it is held by requests
// that take long, or it waits for more than half.
func TestPostsBesideWhatStaysAreWoken(t *testing.T) {
	const quota, slot = 16, 128
	a, b := daemontest.Pair(t, tiny+"[limits]\nworker_slots=25\n")
	g := newGate()
	defer g.Open()
	serve(t, b, 1, handlers{"gate": g.handle})
	serve(t, b, 1, handlers{"post": func(*server.Call) error { return nil }}) // a process that has nothing else to do
	conn := attach(t, a)
	m := method(t, conn, "b/t/post")
	client.SleepForRoomUntilWoken(conn)
	large := make([]byte, 12*slot) // more than half of the quota, so that most of it must be free
	woken(t, "messages of one slot and of many", func() error {
		for i := range 1000 {
			msg := large[:1]
			if i%5 == 4 {
				msg = large
			}
			if err := m.Post(context.Background(), msg); err != nil {
				return err
			}
		}
		return nil
	})
	fs := outstanding(t, method(t, conn, "b/t/gate"), 10)
	woken(t, "beside requests that take long", func() error { return posts(m, 1000) })
	g.Open()
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The same where slow one-way messages hold more than half of what it may hold, and stay.
func TestPostsBesideSlowPostsAreWoken(t *testing.T) {
	const slow = 10 // of the 16 slots that it may have
	for name, limit := range map[string]string{"slots": "worker_slots=25", "bytes": "worker_bytes=2048"} {
		t.Run(name, func(t *testing.T) {
			a, b := daemontest.Pair(t, tiny+"[limits]\n"+limit+"\n")
			g := newGate()
			defer g.Open()
			serve(t, b, slow, handlers{"gate": g.handle})
			serve(t, b, 1, handlers{"post": func(*server.Call) error { return nil }})
			conn := attach(t, a)
			gate, quick := method(t, conn, "b/t/gate"), method(t, conn, "b/t/post")
			client.SleepForRoomUntilWoken(conn)
			woken(t, "slow messages", func() error { return posts(gate, slow) })
			woken(t, "quick ones beside them", func() error { return posts(quick, 300) })
		})
	}
}

// Slots that the process frees itself are room, too, for one that waits to be told of some.
func TestOwnAnswersAreRoomAtALimit(t *testing.T) {
	const quota = 16
	a, b := daemontest.Pair(t, tiny+"[limits]\nworker_slots=25\n")
	serve(t, b, 1, handlers{"post": func(*server.Call) error { return nil }})
	conn := attach(t, a)
	m := method(t, conn, "b/t/post")
	client.SleepForRoomUntilWoken(conn)
	for range 3 { // at the last the process waits without a thread
		var answers []client.Answer
		for range quota {
			answer, err := m.With(client.AnswerSize(1)).CallInPlace(t.Context(), []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, answer)
		}
		ended := make(chan error, 1)
		go func() { ended <- m.Post(context.Background(), []byte("x")) }()
		daemontest.Eventually(t, "it waits", func() error {
			if !client.WaitsToBeTold(conn) {
				return errors.New("it does not")
			}
			return nil
		})
		time.Sleep(2 * shm.ParkAfter) // so long that the next wait is without a thread
		answers[0].Release()
		isWoken(t, "a message", ended)
		for _, answer := range answers[1:] {
			answer.Release()
		}
	}
}

// The quota of bytes counts in all lanes, so that what is done in one is room in another.
func TestPostsInTwoLanesAreWoken(t *testing.T) {
	const classes = "[[class]]\nname=\"small\"\nslot_size=128\nslots=256\nmax_run=16\n[[class]]\nname=\"large\"\nslot_size=4096\nslots=64\nmax_run=4\n"
	a, b := daemontest.Pair(t, classes+"[limits]\nworker_bytes=8192\n")
	serve(t, b, 1, handlers{"post": func(*server.Call) error { return nil }})
	conn := attach(t, a)
	m := method(t, conn, "b/t/post")
	client.SleepForRoomUntilWoken(conn)
	woken(t, "messages of two lanes", func() error {
		msg := make([]byte, 3000)
		for i := range 2000 {
			n := 20
			if i%4 == 3 {
				n = len(msg)
			}
			if err := m.Post(context.Background(), msg[:n]); err != nil {
				return err
			}
		}
		return nil
	})
}
