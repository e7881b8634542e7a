package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/turnstile"
)

// runAttacher attaches and says so.
func runAttacher(args []string) error {
	fmt.Println("started")
	s, err := attach.Open(context.Background(), args[0], attach.Hello{Role: attach.RoleTool}, attach.Events{})
	if err != nil {
		return err
	}
	fmt.Println("attached")
	return s.Close()
}

// A process that tries to attach in vain, over and over, is refused at once after a while,
// without being listened to, and no other process is.
func TestAttachingInVain(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	try := func() error {
		s, err := attach.Open(t.Context(), a.Socket, attach.Hello{Role: "none"}, attach.Events{})
		if err == nil {
			_ = s.Close()
			s.Release()
		}
		return err
	}
	heard, refused := 0, 0
	// Places come back with time: where attempts take long it takes more of them until there are none.
	late := time.Now().Add(2 * time.Minute)
	for tries := 0; tries < 10*turnstile.Burst || refused < turnstile.Burst && time.Now().Before(late); tries++ {
		switch err := try(); {
		case errors.Is(err, attach.ErrInvalid):
			heard++
		case err == nil:
			t.Fatal("a process without a role has attached")
		default: // the reason, or a connection that has ended before it was said
			refused++
		}
	}
	if heard < turnstile.Burst/2 || refused < turnstile.Burst {
		t.Errorf("%d attempts were heard, %d refused at once", heard, refused)
	}
	if m := daemontest.Spawn(t, "attacher", a.Socket); m.Line() != "attached" {
		t.Error("another process cannot attach")
	}
}
