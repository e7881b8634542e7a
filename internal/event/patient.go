package event

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long a line is waited for whose reader does not read.
	patience = 100 * time.Millisecond
	// mostHeld is how many bytes of lines are held for a reader that is slower than what is said, or one line, whatever its length.
	mostHeld = 64 << 10
)

// patientWriter writes to a file, and drops what would keep its process waiting: whoever does not read a daemon's log must
// not stop the daemon. It is safe for concurrent use.
//
// That a file says that it has room is no promise: a terminal says so of any room, and keeps who writes until all of the line
// is in; and of two processes that share a pipe the other one may take the room. So lines are written by a goroutine, of which there is
// one while lines are held. Whoever has said something waits until it is written, but for patience only: what a
// process says before it ends, however it does, has then been read or has no reader.
type patientWriter struct {
	file *os.File
	raw  syscall.RawConn

	mu sync.Mutex
	// held are the lines that are not written yet, the first of which is being written, and size is how many bytes they have.
	held []*heldLine
	size int
	// lost is how many lines were dropped of which no line says so that is held or written. behind: somebody has waited in vain,
	// and until nothing is held nobody waits.
	lost   uint64
	behind bool

	// torn: of the last line only the beginning was written. It is the writing goroutine's.
	torn bool
}

// heldLine is a line that is not written yet. lost is how many lines it says were dropped before it. written is closed when it
// is, or cannot be.
type heldLine struct {
	text    []byte
	lost    uint64
	written chan struct{}
}

// Patient returns a writer to a file of which nobody may read, such as a full pipe or a terminal: it waits for a moment and
// then drops what there is no room for, which is no error. Lines are written whole, one Write after the other.
func Patient(f *os.File) io.Writer {
	if w := newPatientWriter(f); w != nil {
		return w
	}
	return f
}

// newPatientWriter returns nil for a file that has no reader to wait for.
func newPatientWriter(f *os.File) *patientWriter {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		return nil
	}
	return &patientWriter{file: f, raw: raw}
}

// Write implements io.Writer. What it drops is no error.
func (w *patientWriter) Write(line []byte) (int, error) {
	w.writeSaying(line, 0)
	return len(line), nil
}

// writeSaying is Write for a line that says how many were lost before it. If it is dropped, that is for another one to say.
func (w *patientWriter) writeSaying(line []byte, lost uint64) {
	h := &heldLine{bytes.Clone(line), lost, make(chan struct{})}
	if w.hold(h) {
		w.await(h)
	}
}

// saying is the writer of a line that says how many were lost before it.
type saying struct {
	*patientWriter
	lost uint64
}

// Write implements io.Writer.
func (s saying) Write(line []byte) (int, error) {
	s.writeSaying(line, s.lost)
	return len(line), nil
}

// hold takes a line to be written, and reports whether there was room for it.
func (w *patientWriter) hold(h *heldLine) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isFull(h) {
		last := w.held[len(w.held)-1]
		w.mu.Unlock()
		w.await(last)
		w.mu.Lock()
	}
	if w.isFull(h) {
		w.lost += 1 + h.lost
		return false
	}
	w.held = append(w.held, h)
	w.size += len(h.text)
	if len(w.held) == 1 {
		go w.writeHeld()
	}
	return true
}

// isFull reports whether there is no room for a line; w.mu is held.
func (w *patientWriter) isFull(h *heldLine) bool {
	return len(w.held) > 0 && w.size+len(h.text) > mostHeld
}

// await waits for a moment until a line is written, if the last wait was not in vain.
func (w *patientWriter) await(h *heldLine) {
	w.mu.Lock()
	behind := w.behind
	w.mu.Unlock()
	if behind || h.isWrittenSoon() {
		return
	}
	w.mu.Lock()
	w.behind = len(w.held) > 0
	w.mu.Unlock()
}

func (h *heldLine) isWrittenSoon() bool {
	end := time.NewTimer(patience)
	defer end.Stop()
	select {
	case <-h.written:
		return true
	case <-end.C:
		return false
	}
}

// writeHeld writes what is held until nothing is.
func (w *patientWriter) writeHeld() {
	for more := true; more; {
		w.mu.Lock()
		h := w.held[0] // nobody else takes any away
		w.mu.Unlock()
		ok := w.write(h.text)
		w.mu.Lock()
		if !ok {
			w.lost += 1 + h.lost
		}
		w.held[0] = nil
		w.held, w.size = w.held[1:], w.size-len(h.text)
		if more = len(w.held) > 0; !more {
			w.held, w.behind = nil, false
		}
		w.mu.Unlock()
		close(h.written)
	}
}

// write writes a line, and waits as long as that takes.
func (w *patientWriter) write(line []byte) bool {
	if w.torn {
		line = append([]byte{'\n'}, line...)
	}
	for rest := line; ; {
		n, err := w.file.Write(rest)
		rest = rest[n:]
		// Somebody else with the same terminal or pipe may have made it one that does not wait.
		if errors.Is(err, unix.EAGAIN) && w.awaitRoom() == nil {
			continue
		}
		w.torn = err != nil && (w.torn || len(rest) < len(line))
		return err == nil
	}
}

// awaitRoom waits until a write has a chance, or will be told an error.
func (w *patientWriter) awaitRoom() error {
	var failed error
	err := w.raw.Control(func(fd uintptr) {
		for {
			if _, failed = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); failed != unix.EINTR {
				return
			}
		}
	})
	return errors.Join(err, failed)
}

// flush waits for a moment until what was taken is written.
func (w *patientWriter) flush() {
	if w == nil {
		return
	}
	var last *heldLine
	w.mu.Lock()
	if n := len(w.held); n > 0 {
		last = w.held[n-1]
	}
	w.mu.Unlock()
	if last != nil {
		last.isWrittenSoon()
	}
}

// lostLines returns how many lines were dropped that nobody has said were, which the caller does.
func (w *patientWriter) lostLines() (n uint64) {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n, w.lost = w.lost, 0
	return n
}
