package attach_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
)

// Who attaches to something that does not answer gets the error of the context, however close together its end and
// that of the connection are.
func TestAttachUntilDeadline(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "mute")
	l, err := net.Listen("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 600 {
		// However early the end comes: at a hundredth of a millisecond it is about when the connection is there.
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%100)*10*time.Microsecond)
		start := time.Now()
		_, err := attach.Open(ctx, socket, attach.Hello{Role: attach.RoleTool, Name: "hasty"}, attach.Events{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("not the context's error: %v", err)
		}
		if errors.Is(err, attach.ErrClosed) {
			t.Fatalf("the daemon has closed nothing: %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("after %v, of a context that ended at once", took)
		}
	}
}
