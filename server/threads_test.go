package server_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// hallSize is how many handlers wait at once.
const hallSize = 1000

// Threads of the process in runHall, besides those that run goroutines. Handlers that
// wait for something of their own, and workers that have nothing to do, are parked on
// channels, which takes no threads.
const (
	// sleepers sleep in the kernel: the worker that listens to the daemon's bell,
	// and the one that counts threads.
	sleepers = 2
	// successors: one that sleeps may be succeeded by another before its thread,
	// which has found no processor (P), has become idle and can be used again.
	successors = sleepers
)

// A thousand handlers that wait, of as many workers, need no more threads than a few,
// however the server waits for requests. A thread for each would be there every time; one that loses its processor inside
// a short call into the kernel, for which another one takes its place, is not.
func TestManyHandlersFewThreads(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			a, b := daemontest.Pair(t, "")
			least, bound := math.MaxInt, 0
			for n := 0; n < 10 && least > bound; n++ {
				var most int
				most, bound = fillHall(t, a, b, mode)
				t.Logf("%d threads at most, %d allowed", most, bound)
				least = min(least, most)
			}
			if least > bound {
				t.Errorf("%d threads, at most %d expected", least, bound)
			}
		})
	}
}

// fillHall starts a process of handlers that wait, makes all of them, and returns how many threads that has had and may have.
func fillHall(t *testing.T, a, b *daemontest.Node, mode server.Mode) (most, bound int) {
	t.Helper()
	p := daemontest.Spawn(t, "hall", b.Socket, mode.String())
	defer p.Kill()
	m := caller(t, a, "b/t/wait")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fs := make([]*client.Future, hallSize)
	for i := range fs {
		f, err := m.Go(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		fs[i] = f
	}
	// The last handler lets all go on.
	for _, f := range fs {
		if _, err := f.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	line := p.Line()
	if _, err := fmt.Sscanf(line, "threads %d of %d", &most, &bound); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return most, bound
}

// runHall is a process whose handlers wait until hallSize of them do. It prints how many
// threads it had.
func runHall(args []string) error {
	var mode server.Mode
	if err := mode.UnmarshalText([]byte(args[1])); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := server.Attach(ctx, args[0], server.WaitMode(mode), server.Workers(hallSize))
	if err != nil {
		return err
	}
	defer s.Close()
	var inside, left atomic.Int64
	full := make(chan struct{})
	err = s.Handle("t", "wait", func(*server.Call) error {
		if inside.Add(1) == hallSize {
			close(full)
		}
		<-full
		if left.Add(1) == hallSize {
			cancel() // Serve returns when the last handler has
		}
		return nil
	}, server.AnswerSize(0))
	if err != nil {
		return err
	}
	stop := daemontest.WatchThreads()
	fmt.Println("ready")
	if err := s.Serve(ctx); err != nil {
		return err
	}
	most, err := stop()
	fmt.Printf("threads %d of %d\n", most, runtime.GOMAXPROCS(0)+sleepers+successors+daemontest.RuntimeThreads)
	return err
}
