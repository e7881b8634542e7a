package supervisor

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
)

// A daemon that cannot have all that it needs has replaced nothing of what was there.
func TestReplacesNothingInVain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, settings := range []string{
		fmt.Sprintf("listen = %q\n", taken.Addr()),
		fmt.Sprintf("[observe]\nlisten = %q\n", taken.Addr()),
	} {
		cfg := configOf(t, settings)
		pid := config.PIDFile(cfg.Node.Socket)
		if err := os.WriteFile(pid, []byte("1234567890\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		left, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Node.Socket, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		left.SetUnlinkOnClose(false)
		if err := left.Close(); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(cfg.Node.Socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &supervisor{cfg: cfg, log: zerolog.Nop()}
		if err := s.open(nil); err == nil {
			t.Error("two listen at one address")
		}
		s.close()
		if after, err := os.Lstat(cfg.Node.Socket); err != nil || !os.SameFile(before, after) {
			t.Errorf("the socket was replaced: %v", err)
		}
		if text, err := os.ReadFile(pid); err != nil || string(text) != "1234567890\n" {
			t.Errorf("the pid file was replaced: %q, %v", text, err)
		}
	}
}

// A process that has ended counts as dead also before its parent has asked.
func TestDead(t *testing.T) {
	if dead(os.Getpid()) {
		t.Error("this one is not")
	}
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var ended unix.Siginfo // it stays a zombie
	if err := unix.Waitid(unix.P_PID, c.Process.Pid, &ended, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !dead(c.Process.Pid) {
		t.Error("a zombie is")
	}
	if err := c.Wait(); err != nil || !dead(c.Process.Pid) {
		t.Errorf("it has been waited for: %v", err)
	}
}
