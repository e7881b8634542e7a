package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/shm"
)

// A neighbour is an honest process in the place of a hostile one: it takes as much of the
// processors, for what the hostile one does with shared memory, in memory of its own. What is
// slower beside hostile workers than beside neighbours is so because of what they do, and not
// because processors are shared.

// ownMemory is what a neighbour writes to: as much as a vandal has of lanes.
const ownMemory = 9 << 20

// step is how long a neighbour sleeps when it is ahead of its pace.
const step = 200 * time.Microsecond

// neighbourRole calls the decoys of the other node and takes so many millionths of a processor
// as its standard input says, until SIGTERM.
func neighbourRole(ctx context.Context, args *roleArgs) error {
	var pace atomic.Uint64
	go func() {
		var p uint64
		for {
			if _, err := fmt.Fscanln(os.Stdin, &p); err != nil {
				return
			}
			pace.Store(p)
		}
	}()
	go func() {
		for ctx.Err() == nil {
			if conn, err := client.Attach(ctx, args.Socket, client.Name("neighbour")); err == nil {
				decoyCalls(ctx, conn, args.Peer+"/bad/bad")
				_ = conn.Close()
			}
			time.Sleep(again)
		}
	}()
	v := &vandal{rng: rand.New(rand.NewPCG(args.Seed, 0)), id: 1, own: shm.AlignedBytes(ownMemory)}
	last, spent := now(), ownTime()
	debt := 0.0 // in nanoseconds
	for ctx.Err() == nil {
		t, used := now(), ownTime()
		if t-last < int64(time.Second/10) { // else it was stopped
			debt += float64(t-last) * float64(pace.Load()) / 1e6
		} else {
			debt = 0
		}
		debt = min(max(debt-float64(used-spent), -float64(time.Second/10)), float64(time.Second/10))
		last, spent = t, used
		if debt <= 0 {
			time.Sleep(step)
			continue
		}
		for range 200 {
			v.scribble()
		}
	}
	return nil
}

// ownTime is the processor time that this process has taken.
func ownTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// processorTime is what a process has taken, by what the scheduler says of its threads; 0 if
// it is gone.
func processorTime(pid int) (sum time.Duration) {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil {
		return 0
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			continue
		}
		sum += time.Duration(ns)
	}
	return sum
}
