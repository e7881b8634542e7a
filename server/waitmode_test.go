package server_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// modes are all ways to wait.
var modes = []server.Mode{server.Event, server.Adaptive(50 * time.Microsecond), server.Busy}

// In each mode requests are answered, with one worker and with several, slow handlers
// hold up nobody, and Close and the daemon's death end Serve.
func TestWaitModes(t *testing.T) {
	for _, mode := range modes {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprint(mode, " ", workers), func(t *testing.T) {
				a, b := daemontest.Pair(t, "")
				s := attach(t, b, server.WaitMode(mode), server.Workers(workers))
				g := newGate()
				defer g.Open()
				handle(t, s, "gate", g.handle)
				handle(t, s, "echo", func(c *server.Call) error { return c.Reply(c.Request()) })
				done := start(t, s)
				m := caller(t, a, "b/t/echo")
				if workers > 1 {
					if _, err := caller(t, a, "b/t/gate").Go(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					<-g.entered
				}
				var wg sync.WaitGroup
				for i := range 4 {
					wg.Go(func() {
						for k := range 100 {
							msg := fmt.Sprint(i, " ", k)
							if got, err := m.Call(soon(t), []byte(msg)); err != nil || string(got) != msg {
								t.Errorf("%q for %q, %v", got, msg, err)
							}
						}
					})
				}
				wg.Wait()
				g.Open()
				end := s.Close
				if workers > 1 {
					end = b.Crash
				}
				if err := end(); err != nil {
					t.Error(err)
				}
				if err := <-done; !errors.Is(err, server.ErrClosed) {
					t.Errorf("serve: %v", err)
				}
				if err := b.Connected("a"); err != nil { // it is up again
					t.Error(err)
				}
			})
		}
	}
}
