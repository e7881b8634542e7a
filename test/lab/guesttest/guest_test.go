package guesttest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait. The guest is slow.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv("RDMAD_LAB_GUEST") == "" {
		fmt.Println("skipped: not in the guest of a lab, which make lab starts")
		return
	}
	os.Exit(m.Run())
}

// attribute returns the content of a file of an RDMA device.
func attribute(t *testing.T, device, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestKernel(t *testing.T) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	t.Log(unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Version[:]))
	if host := unix.ByteSliceToString(name.Nodename[:]); host != "lab" {
		t.Errorf("the host is called %q, want lab", host)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur != unix.RLIM_INFINITY {
		t.Errorf("memory that may be locked: %d bytes (%v), want no limit", limit.Cur, err)
	}
}

func TestDevices(t *testing.T) {
	for device, gid := range map[string]string{
		"rxe0": "0000:0000:0000:0000:0000:ffff:0a09:0901",
		"rxe1": "0000:0000:0000:0000:0000:ffff:0a09:0801",
	} {
		if state := attribute(t, device, "ports/1/state"); state != "4: ACTIVE" {
			t.Errorf("port 1 of %s is %q, want 4: ACTIVE", device, state)
		}
		if kind := attribute(t, device, "ports/1/gid_attrs/types/1"); kind != "RoCE v2" {
			t.Errorf("GID 1 of %s is of type %q, want RoCE v2", device, kind)
		}
		if got := attribute(t, device, "ports/1/gids/1"); got != gid {
			t.Errorf("GID 1 of %s is %s, want %s", device, got, gid)
		}
	}
}

// start starts a command that is killed when the test or its time ends.
func start(t *testing.T, name string, args ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// finish waits for a command that must succeed.
func finish(t *testing.T, cmd *exec.Cmd, out io.Reader) {
	t.Helper()
	all, _ := io.ReadAll(out) // an error means that the command has been killed
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, all)
	}
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %v", what, patience)
		}
	}
}

// listens reports whether somebody listens at a TCP port of this machine, given
// in hexadecimal as /proc has it.
func listens(t *testing.T, port string) bool {
	t.Helper()
	const listening = "0A"
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], ":"+port) && f[3] == listening {
				return true
			}
		}
	}
	return false
}

func TestPingPong(t *testing.T) {
	args := []string{"-d", "rxe0", "-g", "1", "-n", "100", "-p", "18515"}
	server, serverOut := start(t, "ibv_rc_pingpong", args...)
	await(t, "listener of ibv_rc_pingpong", func() bool { return listens(t, "4853") })
	client, clientOut := start(t, "ibv_rc_pingpong", append(args, "127.0.0.1")...)
	finish(t, client, clientOut)
	finish(t, server, serverOut)
}

func TestConnectionManager(t *testing.T) {
	const address, port = "10.9.9.1", "7174"
	server, serverOut := start(t, "rping", "-s", "-a", address, "-p", port, "-C", "10")
	await(t, "listener of rdma_cm", func() bool {
		out, err := exec.Command("rdma", "resource", "show", "cm_id").Output()
		if err != nil {
			t.Fatalf("rdma resource show cm_id: %v", err)
		}
		return strings.Contains(string(out), "LISTEN") && strings.Contains(string(out), address+":"+port)
	})
	client, clientOut := start(t, "rping", "-c", "-a", address, "-p", port, "-C", "10")
	finish(t, client, clientOut)
	finish(t, server, serverOut)
}
