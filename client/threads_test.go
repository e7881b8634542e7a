package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

const (
	// crowdSize is how many goroutines call at once, several times as many as the
	// ring has slots.
	crowdSize   = 10_000
	crowdConfig = "[[class]]\nname=\"small\"\nslot_size=128\nslots=1024\nmax_run=4\n"
)

// Threads of the process in runCrowd, besides those that run goroutines, of which
// there are as many as processors (Ps). Goroutines that follow, and those that wait
// for their turn to sleep for slots, are parked on channels, which takes no threads.
const (
	// sleepers sleep in the kernel: the leader, one goroutine that waits for slots
	// of the one ring that is used, and the one that counts threads.
	sleepers = 3
	// successors: one that sleeps may be succeeded by another before its thread,
	// which has found no processor (P), has become idle and can be used again.
	successors = sleepers
)

func mostThreads() int {
	return runtime.GOMAXPROCS(0) + sleepers + successors + daemontest.RuntimeThreads
}

// Ten thousand goroutines of a process that call at once, over a ring that is full,
// and give up at random, need no more threads than a few, however they wait. A thread for each that waits would be there
// every time; one that loses its processor inside a short call into the kernel, for which another one takes its place, is not.
func TestManyCallersFewThreads(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			a, b := daemontest.Pair(t, crowdConfig)
			serve(t, b, 4, nil)
			method(t, attach(t, a), "b/t/echo")
			least, bound := math.MaxInt, 0
			for n := 0; n < 10 && least > bound; n++ {
				most := 0
				p := daemontest.Spawn(t, "crowd", a.Socket, mode.String())
				line := p.Line()
				if _, err := fmt.Sscanf(line, "threads %d of %d", &most, &bound); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				t.Logf("%d threads at most, %d allowed", most, bound)
				least = min(least, most)
				p.Kill()
				quiet(t, a, b)
			}
			if least > bound {
				t.Errorf("%d threads, at most %d expected", least, bound)
			}
		})
	}
}

// runCrowd is a process of very many callers. It prints how many threads it had.
func runCrowd(args []string) error {
	fmt.Println("ready")
	var mode client.Mode
	if err := mode.UnmarshalText([]byte(args[1])); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Attach(ctx, args[0], client.WaitMode(mode))
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := c.Method(ctx, "b/t/echo")
	if err != nil {
		return err
	}
	stop := daemontest.WatchThreads()
	for _, patient := range []bool{true, false} {
		if err := crowd(ctx, m, patient); err != nil {
			return err
		}
	}
	most, err := stop()
	fmt.Printf("threads %d of %d\n", most, mostThreads())
	return err
}

// crowd makes every goroutine of the crowd call three times. Those that are not patient
// have contexts that end after a while, most of them before the answer.
func crowd(ctx context.Context, m *client.Method, patient bool) error {
	errs := make([]error, crowdSize)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for k := range 3 {
				msg := binary.LittleEndian.AppendUint64(nil, uint64(i))
				its, cancel := ctx, context.CancelFunc(func() {})
				if !patient {
					its, cancel = context.WithTimeout(ctx, time.Duration(1+(i+k)%50)*time.Millisecond)
				}
				got, err := m.Call(its, msg)
				cancel()
				if err == nil && !bytes.Equal(got, msg) || err != nil && (patient || !errors.Is(err, client.ErrDeadline)) {
					errs[i] = fmt.Errorf("call %d of goroutine %d: %x, %w", k, i, got, err)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
