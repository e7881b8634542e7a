package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	wire "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/slots"
)

// offend attaches as a service and says that it has finished requests of lanes that it never had, until it is disconnected. Then it
// lives on.
func offend(args []string) error {
	over := make(chan error, 1)
	s, err := wire.Open(context.Background(), args[0], wire.Hello{Role: wire.RoleService, Name: "offender"}, wire.Events{Ended: func(err error) { over <- err }})
	if err != nil {
		return err
	}
	fmt.Println("attached")
	for {
		for i := range 100 {
			s.Rings.Up.Push(slots.MakeHint(slots.MaxLanes-1, i, 1))
		}
		if sleep := s.Bells.MarkWorker(s.Welcome.ID); sleep != 0 {
			s.Bell.Ring()
			s.Bells.Rung(sleep)
		}
		select {
		case err := <-over:
			fmt.Println(err)
			return daemontest.Stay()
		case <-time.After(time.Millisecond):
		}
	}
}

// A core whose domain gets new memory registers the methods of its service again, and goes on.
func TestRotation(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ctx, far := inTime(t), attach(t, a)
	core, err := b.Core()
	if err != nil {
		t.Fatal(err)
	}
	warm(ctx, t, far, "b/t/thread")
	for n := range uint64(2) {
		offender := daemontest.Spawn(t, "offender", b.Socket)
		if why := offender.Line(); !strings.Contains(why, "limits.strikes") {
			t.Errorf("the offender is told %q", why)
		}
		daemontest.Eventually(t, "the domain gets new memory", func() error {
			st, err := b.Status(ctx)
			if err == nil && st.Counters["rotations"] != n+1 {
				err = fmt.Errorf("%d rotations", st.Counters["rotations"])
			}
			return err
		})
		daemontest.Eventually(t, "a process of the node", func() error {
			near, err := client.Attach(ctx, b.Socket)
			if err == nil {
				_, err = near.Call(ctx, "b/t/echo", []byte("X"))
				err = errors.Join(err, near.Close())
			}
			return err
		})
		for _, target := range []string{"b/t/echo", "b/t/thread"} { // of which the other node hears anew, one after the other
			daemontest.Eventually(t, "another node", func() error {
				_, err := far.Call(ctx, target, []byte("X"))
				return err
			})
		}
		warm(ctx, t, far, "b/t/thread")
		offender.Kill()
	}
	if now, err := b.Core(); err != nil || now != core {
		t.Errorf("core %d, was %d, %v", now, core, err)
	}
}
