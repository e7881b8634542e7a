package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// offend breaks the protocol until it is disconnected, says why, and lives on.
func offend(args []string) error {
	reason, err := daemontest.Offend(args[0], false)
	if err != nil {
		return err
	}
	fmt.Println(reason)
	return daemontest.Stay()
}

// A core whose domain gets new memory registers the methods of its service again, and goes on.
func TestRotation(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	ctx, far := patientContext(t), attach(t, a)
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
