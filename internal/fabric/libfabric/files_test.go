//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A device of shm removes what processes have left that were killed, and nothing else.
func TestSweep(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	var here unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &here); err != nil {
		t.Fatal(err)
	}
	file := func(namespace uint64, pid int, rest string) string {
		name := filepath.Join(filesDir, fmt.Sprintf("rdmad-%d-%d-%s-%d", namespace, pid, rest, os.Getpid()))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(name) })
		return name
	}
	gone := file(here.Ino, dead.Process.Pid, "test")
	left := []string{
		file(here.Ino, os.Getpid(), "test"),
		file(here.Ino+1, dead.Process.Pid, "test"),
		file(here.Ino, 0, "test"),
		file(here.Ino, -1, "test"),
	}
	d, err := newProvider(t, Config{Provider: shmProvider}).Open(fabric.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if own := d.(*Device); !present(string(own.ctlName)) || present("x"+string(own.ctlName)) {
		t.Errorf("%q is not the name of the file", own.ctlName)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(gone); err == nil {
		t.Error("what a killed process has left is there")
	}
	for _, name := range left {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

// An end whose peer has been closed is told so before it looks at what that has sent.
func TestPeerClosedBefore(t *testing.T) {
	d, err := newProvider(t, Config{Provider: shmProvider}).Open(fabric.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	own := d.(*Device)
	pd, err := own.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	q, err := own.CreateCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]fabric.Endpoint
	for i := range ends {
		if ends[i], err = pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 1, RecvDepth: 1}); err != nil {
			t.Fatal(err)
		}
	}
	address := ends[1].Address()
	if err := ends[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := ends[0].Connect(t.Context(), address, fabric.Passive); !errors.Is(err, errPeerGone) {
		t.Errorf("connected to what was closed: %v", err)
	}
	for _, err := range []error{ends[0].Close(), pd.Close(), q.Close(), d.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}
