package shm_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

// roleEnv makes the test binary play one of the roles below instead of running
// tests: a second process to share memory with. Its descriptor 3 is a segment.
const roleEnv = "RDMAD_SHM_TEST_ROLE"

const (
	testSize = 3 * shm.HeaderSize
	offWord  = shm.HeaderSize
	offReady = shm.HeaderSize + 64
	offDone  = shm.HeaderSize + 128
	offOver  = shm.HeaderSize + 192
)

const (
	// patience bounds every wait here: much longer than anything takes on a busy machine.
	patience = 2 * time.Minute
	// hang is how long a sleep lasts that nobody ends: a test that took that long has failed.
	hang = 2 * patience
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// play is what a child process does.
func play(role string) error {
	seg, err := shm.Open(3, shm.KindTest, testSize)
	if err != nil {
		return err
	}
	word := shm.Uint32At(seg.Bytes(), offWord)
	ready := shm.Uint32At(seg.Bytes(), offReady)
	done := shm.Uint32At(seg.Bytes(), offDone)
	over := shm.Uint32At(seg.Bytes(), offOver)
	ready.Add(1)
	switch role {
	// The word does not change, and a sleep may end for no reason: whoever is not told that
	// it is over sleeps again, so that there is somebody to wake, however late the parent is.
	case "sleep":
		for over.Load() == 0 {
			shm.FutexWait(word, 0, hang)
		}
	case "sleep-raw":
		for over.Load() == 0 {
			shm.FutexWaitRaw(word, 0, hang)
		}
	// It wakes everybody every few milliseconds, and says every few times on descriptor 4 what time it is.
	case "pulse":
		for i := range pulses {
			time.Sleep(3 * time.Millisecond)
			word.Add(1)
			shm.FutexWake(word, shm.WakeMany)
			if i%5 == 0 {
				var now [8]byte
				binary.LittleEndian.PutUint64(now[:], uint64(shm.Nanotime()))
				if _, err := unix.Write(4, now[:]); err != nil {
					return err
				}
			}
		}
	case "poll-unknown":
		if err := pollRefused(unix.ENOSYS); err != nil {
			return err
		}
	case "poll-forbidden":
		if err := pollRefused(unix.EPERM); err != nil {
			return err
		}
	case "wake":
		deadline := time.Now().Add(patience)
		for shm.FutexWake(word, 1) == 0 {
			if time.Now().After(deadline) {
				return fmt.Errorf("nobody slept")
			}
			runtime.Gosched()
		}
		// The sleep may have ended just before: the next one must not begin.
		word.Store(1)
		shm.FutexWake(word, shm.WakeMany)
	default:
		return fmt.Errorf("unknown role %q", role)
	}
	done.Add(1)
	return seg.Close()
}

// pulses is how often a "pulse" wakes.
const pulses = 200

// child starts a process that plays role with the segment as descriptor 3, and others from 4 on, and
// returns a function that waits for its end.
func child(t *testing.T, role string, seg *shm.Segment, more ...*os.File) (wait func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, "GORACE=atexit_sleep_ms=0")
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(seg.FD()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.ExtraFiles, cmd.Stderr = append([]*os.File{f}, more...), &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	return func() {
		t.Helper()
		err := cmd.Wait()
		guard.Stop()
		if err != nil {
			t.Errorf("child %s: %v: %s", role, err, out.String())
		}
	}
}

// eventually calls ok until it returns true, for a bounded time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func testSegment(t *testing.T) *shm.Segment {
	t.Helper()
	s, err := shm.Create(shm.CreateOptions{Name: "test", Kind: shm.KindTest, Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
