package test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// largeRole calls with messages of args.Most bytes, both ways, until it has sent
// args.Messages of them, and says so after each.
func largeRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	flip, err := conn.Method(ctx, args.Node+"/"+args.Service+"/flip")
	if err != nil {
		return err
	}
	msg := make([]byte, args.Most)
	stream(msg, args.Seed)
	var answer []byte
	for range args.Messages {
		if answer, err = flip.CallInto(ctx, msg, answer); err != nil {
			return err
		}
		if !flipped(answer, msg) {
			return fmt.Errorf("wrong answer of %d bytes", len(answer))
		}
		if err := say.Encode(len(answer)); err != nil {
			return err
		}
	}
	return nil
}

// residentPeak returns the most memory that a process has had since forgetPeak, in bytes,
// with what it shares.
func residentPeak(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no peak in %s", status)
	return 0
}

func forgetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// The largest message, in both directions, checked from end to end; the daemons need no
// more memory of their own for it than for others.
func TestLargest(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "transform", 0)
	cores := []int{c.status("a").PIDs.Core, c.status("b").PIDs.Core}
	run := func(most, messages int) (peaks [2]int) {
		for _, pid := range cores {
			forgetPeak(t, pid)
		}
		m := startMember(t, "large", roleArgs{Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: messages, Most: most, Seed: 1})
		var n int
		for range messages {
			m.hearWithin(limit+time.Duration(most/1e6)*time.Second/20, &n)
		}
		m.finish()
		for i, pid := range cores {
			peaks[i] = residentPeak(t, pid)
		}
		return peaks
	}
	warm := run(16<<20, 2)
	begin := time.Now()
	peaks := run(*largest, 1)
	t.Logf("%d bytes there and back in %v; peaks of the cores %d MiB, with 16 MiB messages %d MiB", *largest, time.Since(begin), peaks[0]>>20, warm[0]>>20)
	more := [2]int{16 << 20, 16 << 20}
	if *fabricName != "tcp" {
		// A request and its answer are in regions of the handler's process, which are registered with a
		// device and so in the core's memory, too: as much as the library keeps at the most.
		more[1] += min(2**largest, 256<<20)
	}
	for i := range peaks {
		if peaks[i] > warm[i]+more[i] {
			t.Errorf("core %d: %d MiB at most, and %d MiB with messages of 16 MiB", i, peaks[i]>>20, warm[i]>>20)
		}
	}
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
	c.awaitNoRegions()
}

// Large messages of one process delay the small calls of another one only so much. How
// much is measured here, and bounded generously: the processes share few processors.
func TestSmallCallsBesideLarge(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	startService(t, c, "b", "other")
	c.awaitService("a", "b", "jobs", "transform", 0)
	c.awaitService("a", "b", "other", "transform", 0)
	conn := c.attach("a")
	small, err := conn.Method(bounded(t), "b/other/transform")
	if err != nil {
		t.Fatal(err)
	}
	msg := make([]byte, 64)
	binary.LittleEndian.PutUint32(msg, 64)
	p99 := func() time.Duration {
		var took []time.Duration
		for end := time.Now().Add(400 * time.Millisecond); len(took) == 0 || time.Now().Before(end); {
			begin := time.Now()
			if _, err := small.Call(bounded(t), msg); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	var alone, beside []time.Duration
	for n := 0; n < 3 || n < 8 && starved(alone, beside); n++ {
		alone = append(alone, p99())
		m := startMember(t, "large", roleArgs{Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: 1 << 20, Most: 64 << 20, Seed: 1})
		var n int
		m.hear(&n)
		beside = append(beside, p99())
		if err := m.kill(); err == nil {
			t.Error("it ended by itself")
		}
	}
	t.Logf("p99 of small calls %v, beside large ones %v", alone, beside)
	if starved(alone, beside) {
		t.Errorf("p99 of small calls %v, beside large ones %v", alone, beside)
	}
}

// starved compares the best rounds of each kind: what else runs on the machine disturbs both.
func starved(alone, beside []time.Duration) bool {
	if len(beside) == 0 {
		return false
	}
	with := slices.Min(beside)
	return with > 20*slices.Min(alone) && with > 20*time.Millisecond
}
