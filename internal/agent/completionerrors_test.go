package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/fabric"
)

// Each status that is not success has a counter of its own, also with work of a connection
// that is gone; what no table knows is counted as fatal.
func TestCompletionErrorsAreCounted(t *testing.T) {
	r := newDelayRig(t)
	a := r.a.a
	seen := map[*uint64]fabric.Status{}
	for s := fabric.StatusSuccess + 1; !strings.HasPrefix(s.String(), "status("); s++ {
		counter := completionErrors(a.Count, s)
		if other, ok := seen[counter]; ok {
			t.Errorf("%v and %v have one counter", s, other)
		}
		seen[counter] = s
		a.completion(&fabric.Completion{Tag: 1 << 60, Status: s})
		if *counter != 1 {
			t.Errorf("%v was counted %d times", s, *counter)
		}
	}
	infos := 0
	for _, i := range counters.Infos[counters.AgentCounts]() {
		if strings.HasPrefix(i.Name, "completion_errors_") {
			infos++
		}
	}
	if infos != len(seen) {
		t.Errorf("%d counters for %d statuses", infos, len(seen))
	}
	a.completion(&fabric.Completion{Tag: 1 << 60, Status: 200})
	if a.Count.ErrorFatal != 2 {
		t.Errorf("an unknown status: %d fatal errors, want 2", a.Count.ErrorFatal)
	}
}

// What is posted is outstanding until its completion was seen, or until its connection has
// ended.
func TestWritesAreCounted(t *testing.T) {
	r := newDelayRig(t)
	n := r.a.a.Count
	r.post(16)
	if n.WritesPosted == 0 || n.WritesPosted != n.RequestGroups {
		t.Fatalf("%d writes for %d groups", n.WritesPosted, n.RequestGroups)
	}
	for range 16 { // the queue is polled by the agent's duty, which the rig does not do all of
		r.a.a.completions()
		r.b.a.completions()
	}
	if n.WritesOutstanding != 0 || n.Completions == 0 || n.CompletionDepth != 0 {
		t.Errorf("%d writes outstanding, %d completions, %d in the last cycle", n.WritesOutstanding, n.Completions, n.CompletionDepth)
	}
	if n.WritesInline != 0 {
		t.Errorf("%d writes inline on a fabric without", n.WritesInline)
	}
	end := r.out.End
	end.inline = 64
	end.part(0, 64)
	end.part(0, 65)
	if err := end.flush(); err != nil {
		t.Fatal(err)
	}
	if n.WritesInline != 1 || n.WritesOutstanding != 2 {
		t.Errorf("%d writes inline, want 1; %d outstanding, want 2", n.WritesInline, n.WritesOutstanding)
	}
	r.out.Fail("the test ends it", nil)
	if n.WritesOutstanding != 0 {
		t.Errorf("%d writes outstanding on no connection", n.WritesOutstanding)
	}
}

// A provider that completes more receives than were posted ends the lane, and not the process.
func TestMoreReceivesThanPosted(t *testing.T) {
	r := newDelayRig(t)
	end := r.out.End
	for i := range recvDepth {
		// None was really used, so that none can be posted again.
		if err := end.received(); err != nil {
			t.Fatalf("receive %d: %v", i, err)
		}
	}
	if err := end.received(); !errors.Is(err, errReceives) {
		t.Fatalf("one more than were posted: %v, want %v", err, errReceives)
	}
}

// leftEndpoint is one whose peer has closed the other end, which no completion has said yet.
type leftEndpoint struct{ fabric.Endpoint }

func (leftEndpoint) PostSend([]fabric.SendWR) (int, error) { return 0, fabric.ErrClosed }
func (leftEndpoint) PostRecv([]fabric.RecvWR) (int, error) { return 0, fabric.ErrClosed }
func (leftEndpoint) Explain(c fabric.Completion) error {
	return fmt.Errorf("%w: %w", c.Status.Err(), fabric.ErrPeerClosed)
}

// A lane that ends because nothing can be posted any more says why the connection has ended, before a completion does.
func TestPostsToAPeerThatHasClosed(t *testing.T) {
	r := newDelayRig(t)
	why := make(chan error, 1)
	r.out.OnBroken = func(err error) { why <- err }
	r.out.End.Endpoint = leftEndpoint{r.out.End.Endpoint}
	said := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fabric.ErrClosed) || !errors.Is(err, fabric.ErrPeerClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.out.End.spent = recvDepth/2 - 1
	said("receives", r.out.End.received())
	r.post(1)
	if r.out.End != nil {
		t.Fatal("the lane is up")
	}
	said("a write", <-why)
}
