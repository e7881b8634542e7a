package event

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long a line is waited for whose reader does not read, and lineStep how much of one is written at
	// a time: a pipe that says that it has room has room for so much.
	patience = 100 * time.Millisecond
	lineStep = 4096
)

// patientWriter writes to a file, and drops what would keep its process waiting: whoever does not read a daemon's log must
// not stop the daemon. It is safe for concurrent use. Two processes with one pipe that ask at the same moment, when it has
// room for one of them only, are not told apart: one of them waits.
type patientWriter struct {
	file *os.File
	raw  syscall.RawConn

	mu sync.Mutex
	// lost is how many lines were dropped since lostLines. deaf: the last one was, and the next one is not waited for.
	// torn: of the last one only the beginning was written.
	lost       uint64
	deaf, torn bool
}

// Patient returns a writer to a file of which nobody may read, such as a full pipe: it waits for a moment and then drops what
// there is no room for, which is no error.
func Patient(f *os.File) io.Writer {
	if w := newPatientWriter(f); w != nil {
		return w
	}
	return f
}

// newPatientWriter returns nil for a file that cannot be asked whether it has room.
func newPatientWriter(f *os.File) *patientWriter {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return &patientWriter{file: f, raw: raw}
}

// Write implements io.Writer. What it drops is no error.
func (w *patientWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait := patience
	if w.deaf {
		wait = 0
	}
	rest := line
	if w.torn {
		rest = append([]byte{'\n'}, line...)
	}
	for whole := len(rest); len(rest) > 0; {
		if w.deaf = !w.room(wait); w.deaf {
			w.lost++
			w.torn = w.torn || len(rest) < whole
			return len(line), nil
		}
		step := rest[:min(len(rest), lineStep)]
		if _, err := w.file.Write(step); err != nil {
			return 0, err
		}
		rest = rest[len(step):]
	}
	w.torn = false
	return len(line), nil
}

// room reports whether a write would not wait, or would be told an error.
func (w *patientWriter) room(wait time.Duration) bool {
	room := true
	end := time.Now().Add(wait)
	err := w.raw.Control(func(fd uintptr) {
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(fds, int(max(0, time.Until(end)).Milliseconds()))
			if err != unix.EINTR {
				room = n > 0 || err != nil
				return
			}
		}
	})
	return room || err != nil
}

// lostLines returns how many lines were dropped since it was last called.
func (w *patientWriter) lostLines() (n uint64) {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n, w.lost = w.lost, 0
	return n
}

// isDeaf reports whether the last line was dropped.
func (w *patientWriter) isDeaf() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deaf
}

// unsaid counts lines as lost again: that they were could not be said.
func (w *patientWriter) unsaid(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost += n
}
