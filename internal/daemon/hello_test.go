package daemon

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
)

// A hello that is there counts, though the core has stood still until the time for it was over; who says nothing is not waited for.
func TestHelloIsHeardThoughItsTimeIsOver(t *testing.T) {
	ours, theirs := socketPair(t)
	if err := theirs.Send(&attach.Message{Type: attach.TypeHello, Seq: 1}); err != nil {
		t.Fatal(err)
	}
	if m, err := receiveHello(ours, time.Now().Add(-time.Minute)); err != nil || m.Type != attach.TypeHello {
		t.Fatalf("%+v, %v", m, err)
	}
	if m, err := receiveHello(ours, time.Now().Add(-time.Minute)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("of who says nothing: %+v, %v", m, err)
	}
}
