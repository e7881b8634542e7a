package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric/libfabric"
)

// A process that is killed while it reads the memory of another over shm leaves the other's queue as it was: that one
// ends by itself, and is not held up by the library.
func TestPerfOverShmKilledReader(t *testing.T) {
	if !libfabric.Built {
		t.Skip("this build has no libfabric: apt-get install libfabric-dev, go test -tags libfabric")
	}
	f := newFixture(t)
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		const over = " --fabric libfabric --provider shm"
		server := f.startSide(ctx, "blast --listen 127.0.0.1 -p 0"+over)
		port := listens.FindStringSubmatch(server.until(server.stderr, "waiting for a client"))
		if port == nil {
			t.Fatalf("no port: %s", server.said)
		}
		client := f.startSide(ctx, "blast --op read -s 1MiB -D 1h 127.0.0.1 -p "+port[1]+over)
		client.until(client.stdout, "other side: provider libfabric shm")
		// Nearly all the time that it has then is spent in reads.
		const tenths = 5
		for before := worked(t, client.cmd.Process.Pid); worked(t, client.cmd.Process.Pid) < before+10*tenths; time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal("the client does nothing")
			}
		}
		if err := client.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		line := server.until(server.stderr, "the other side is gone")
		_ = server.cmd.Wait() // its status is looked at
		_ = client.cmd.Wait()
		if status := server.cmd.ProcessState.ExitCode(); status != exitFailure || strings.Contains(line, "held up") {
			t.Fatalf("status %d, want %d: %s", status, exitFailure, line)
		}
	}
}

// worked returns the processor time of a process in hundredths of a second.
func worked(t *testing.T, pid int) (n int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, field := range fields[11:13] { // in user mode, and in the kernel
		ticks, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		n += ticks
	}
	return n
}
