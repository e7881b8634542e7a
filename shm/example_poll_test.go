package shm_test

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/shm"
)

func ExamplePoll_Until() {
	mem := shm.AlignedBytes(64)
	word := shm.Uint32At(mem, 0)
	var done atomic.Bool
	go func() {
		done.Store(true)
		word.Add(1)
		shm.FutexWake(word, shm.WakeMany)
	}()
	p := shm.Poll{Mode: shm.WaitAdaptive(20 * time.Microsecond)}
	for !done.Load() {
		old := word.Load()
		if !p.Until(done.Load) && !done.Load() {
			shm.FutexWait(word, old, 50*time.Millisecond)
		}
	}
	fmt.Println("done")
	// Output: done
}

func ExampleWaitMode_UnmarshalText() {
	var m shm.WaitMode
	for _, text := range []string{"busy", "adaptive:20us", "lazy"} {
		if err := m.UnmarshalText([]byte(text)); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(m)
	}
	// Output:
	// busy
	// adaptive:20µs
	// wait mode "lazy": want event, busy, adaptive, or adaptive: and 0s to 1ms
}

func ExampleWaitAdaptive() {
	fmt.Println(shm.WaitAdaptive(20*time.Microsecond), shm.WaitAdaptive(0), shm.WaitAdaptive(time.Hour))
	// Output: adaptive:20µs event adaptive:1ms
}
