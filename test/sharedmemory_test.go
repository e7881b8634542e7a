package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// The segment that TestSharedMemory shares: whose turn it is, and a counter.
const (
	sharedSize = 2 * shm.HeaderSize
	offTurn    = shm.HeaderSize
	offCount   = shm.HeaderSize + 128
	// rounds is how often each process has its turn.
	rounds = 2000
	// sharedFD is the descriptor of the segment in a worker process.
	sharedFD = 3
)

// Shared memory alone: two processes take turns to increase a counter in it,
// each asleep until the other wakes it. Nothing of rdmad runs.
func TestSharedMemory(t *testing.T) {
	seg, err := shm.Create(shm.CreateOptions{Name: "rdmad-test", Kind: shm.KindTest, Size: sharedSize})
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	fd, err := unix.FcntlInt(uintptr(seg.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "segment")
	defer file.Close()
	m := startMember(t, "shared", roleArgs{}, func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{file} })
	if err := takeTurns(seg, 0); err != nil {
		t.Fatal(err)
	}
	m.finish()
	if n := shm.Uint32At(seg.Bytes(), offCount).Load(); n != 2*rounds {
		t.Errorf("the counter is %d, want %d", n, 2*rounds)
	}
}

// sharedRole is the other process.
func sharedRole(context.Context, *roleArgs, *json.Encoder) error {
	seg, err := shm.Open(sharedFD, shm.KindTest, sharedSize)
	if err != nil {
		return err
	}
	defer seg.Close()
	return takeTurns(seg, 1)
}

// takeTurns increases the counter whenever it is this side's turn. It loads and
// stores, and does not add: an increase is lost if turns do not order them.
func takeTurns(seg *shm.Segment, side uint32) error {
	turn, count := shm.Uint32At(seg.Bytes(), offTurn), shm.Uint32At(seg.Bytes(), offCount)
	for range rounds {
		if err := await(turn, side); err != nil {
			return err
		}
		count.Store(count.Load() + 1)
		turn.Store(1 - side)
		shm.FutexWake(turn, shm.WakeMany)
	}
	return nil
}

// await sleeps until a word has a value.
func await(word *atomic.Uint32, want uint32) error {
	for begin := time.Now(); ; {
		now := word.Load()
		if now == want {
			return nil
		}
		if time.Since(begin) > limit {
			return fmt.Errorf("the word is %d, not %d, after %v", now, want, limit)
		}
		shm.FutexWait(word, now, time.Second)
	}
}
