package daemon_test

import (
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/event"
)

// counted waits until a node has counted an event, and returns its entry.
func counted(t *testing.T, n *daemontest.Node, code event.Code) (found event.Entry) {
	t.Helper()
	daemontest.Eventually(t, fmt.Sprintf("node %s counts %s", n.Name, code), func() error {
		st, err := n.Status(t.Context())
		if err != nil {
			return err
		}
		for _, e := range st.Errors {
			if e.Code == code {
				found = e
				return nil
			}
		}
		return fmt.Errorf("errors: %+v", st.Errors)
	})
	return found
}

// What the core and the supervisor count is in the status, below the level of the log
// too, and is still there after the core has died.
func TestErrorsOutliveTheCore(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	// Where both have dialled, one link has taken the place of the other.
	var links uint64
	for _, e := range statusOf(t, a).Errors {
		if e.Code == event.PeerDisconnected {
			links = e.Count
		}
	}
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	var first event.Entry
	daemontest.Eventually(t, "another link is lost", func() error {
		if first = counted(t, a, event.PeerDisconnected); first.Count <= links {
			return fmt.Errorf("%+v", first)
		}
		return nil
	})
	if first.Subject != "peer b" || first.Level != "warn" || first.Process != "core" || first.Text == "" {
		t.Errorf("peer-disconnected: %+v, %d before", first, links)
	}
	// One may have taken the place of another until b was gone.
	daemontest.Eventually(t, "each link that is lost is counted once", func() error {
		st := statusOf(t, a)
		for _, e := range st.Errors {
			if e.Code == event.PeerDisconnected && e.Count == st.Counters["links_lost"] {
				return nil
			}
		}
		return fmt.Errorf("%d links are lost: %+v", st.Counters["links_lost"], st.Errors)
	})
	counted(t, a, event.PeerUnreachable)
	// What is kept is kept once in a second: the second error is there when the first of the
	// next round is.
	daemontest.Eventually(t, "the next core knows", func() error {
		if err := a.KillCore(); err != nil {
			return err
		}
		died := counted(t, a, event.CoreDied)
		if died.Process != "supervisor" || died.Text == "" || died.Level != "error" {
			return fmt.Errorf("core-died: %+v", died)
		}
		again := counted(t, a, event.PeerDisconnected)
		if !again.First.Equal(first.First) {
			return fmt.Errorf("first seen %v, before %v", again.First, first.First)
		}
		return nil
	})
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	if err := a.Connected("b"); err != nil {
		t.Fatal(err)
	}
}
