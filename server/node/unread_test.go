package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// superviseUnread is supervise with a standard error that is full, and that nobody reads.
func superviseUnread(args []string) error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	for _, step := range []int{4096, 1} {
		for {
			if _, err := unix.Write(ends[1], make([]byte, step)); errors.Is(err, unix.EAGAIN) {
				break
			} else if err != nil {
				return err
			}
		}
	}
	if err := errors.Join(unix.SetNonblock(ends[1], false), unix.Dup3(ends[1], 2, 0)); err != nil {
		return err
	}
	return supervise(args)
}

// What an inline handler does wrong is answered, and holds nobody up, also if nobody reads what the core has to say of it.
func TestHandlersThatFailUnread(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "rdmad.sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, "[node]\nname=\"a\"\nsocket=%q\ndrain_timeout=\"100ms\"\n", socket), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := patientContext(t)
	daemontest.Spawn(t, "unread", file)
	c := attachSoon(socket)
	defer c.Close()
	core := coreOf(ctx, t, c)
	warm(ctx, t, c, "t/thread")
	for range 20 { // more than wait for a log
		for method, text := range map[string]string{"panic": "a handler's panic", "exit": "handler exited"} {
			_, err := c.Call(ctx, "t/"+method, []byte("x"))
			if !errors.Is(err, client.ErrRemote) || !strings.Contains(err.Error(), text) {
				t.Fatalf("%s: %v", method, err)
			}
		}
		if p, err := c.Call(ctx, "t/echo", []byte("x")); err != nil || string(p) != "x" {
			t.Fatalf("echo: %q, %v", p, err)
		}
	}
	if !onAgentOf(ctx, t, c, "t/thread") {
		t.Error("the agent handles no more")
	}
	if now := coreOf(ctx, t, c); now != core {
		t.Errorf("core %d has become %d", core, now)
	}
}
