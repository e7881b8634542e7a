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
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := attach.Open(ctx, socket, attach.Hello{Role: attach.RoleTool, Name: "hasty"}, attach.Events{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("not the context's error: %v", err)
		}
	}
}
