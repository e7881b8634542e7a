package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// inPipe reads what is in a pipe.
func inPipe(t *testing.T, r *os.File) (data []byte) {
	t.Helper()
	raw, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Read(func(fd uintptr) bool {
		part := make([]byte, 64<<10)
		for {
			n, err := unix.Read(int(fd), part) // the poller's descriptors do not block
			if n <= 0 {
				if !errors.Is(err, unix.EAGAIN) {
					t.Errorf("read: %d, %v", n, err)
				}
				return true
			}
			data = append(data, part[:n]...)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return data
}

// sayUnread says lines of 1000 bytes and a longer one to a log that nobody reads. That must not take long.
func sayUnread(t *testing.T, logger *zerolog.Logger, lines int) {
	t.Helper()
	long := strings.Repeat("x", 1000)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range lines - 1 {
			logger.Info().Str("long", long).Msg("said")
		}
		logger.Info().Str("long", strings.Repeat(long, 10)).Msg("said")
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("who says something waits for a reader")
	}
}

// checkUnread looks at what a reader that comes late finds: whole lines, of which the last one says how many are missing. So
// may one before it of those before that: where whoever writes stands still for a moment, lines are dropped while there is room.
func checkUnread(t *testing.T, text []byte, lines int) {
	t.Helper()
	found := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	lost := 0
	for i, line := range found {
		var said struct {
			Message string
			Lost    int
		}
		if err := json.Unmarshal(line, &said); err != nil {
			t.Fatalf("line %d: %v: %s", i, err, line)
		}
		lost += said.Lost
		switch last := i == len(found)-1; {
		case last && (said.Message != "after" || said.Lost == 0 || lost+i != lines):
			t.Errorf("%d of %d lines were kept, %d are said to be lost, and the last one is %s", i, lines, lost, line)
		case !last && said.Message != "said":
			t.Errorf("line %d: %s", i, line)
		}
	}
}

// A log that nobody reads costs the daemon a moment, and lines; the next one that is read says how many.
func TestUnreadLog(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := New(w, Options{Level: zerolog.InfoLevel, Process: "core"})
	logger := l.Logger()
	const lines = 2000
	sayUnread(t, &logger, lines)
	text := inPipe(t, r) // what there was room for, which makes room for what is held
	text = append(text, readUntilAfter(t, r, l)...)
	if len(text) < mostHeld/2 {
		t.Errorf("%d bytes were kept", len(text))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	checkUnread(t, text, lines)
}

// readUntilAfter reads what is held, then says "after", and reads that.
func readUntilAfter(t *testing.T, r *os.File, l *Log) (text []byte) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	logger := l.Logger()
	said := make(chan struct{})
	part := make([]byte, 4096)
	go func() {
		defer close(said)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); l.Flush() {
			if l.patient.isIdle() {
				logger.Info().Msg("after")
				return
			}
		}
	}()
	for !bytes.Contains(text, []byte(`"message":"after"`)) || !bytes.HasSuffix(text, []byte("\n")) {
		n, err := r.Read(part)
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(text), err)
		}
		text = append(text, part[:n]...)
	}
	<-said
	return text
}

// isIdle reports whether everything is written.
func (w *patientWriter) isIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held) == 0
}

// terminal returns both ends of a pseudo terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals here (mount -t devpts devpts /dev/pts): %v", err)
	}
	t.Cleanup(func() { _ = master.Close() }) // also ends a write to the other end
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	cerr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err := errors.Join(cerr, err); err != nil {
		t.Fatal(err)
	}
	// As standard error is: Go does not make it non-blocking.
	fd, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	slave = os.NewFile(uintptr(fd), "terminal")
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// So does one on a terminal, which says that it has room and then keeps who writes.
func TestUnreadTerminal(t *testing.T) {
	master, slave := terminal(t)
	l := New(slave, Options{Level: zerolog.InfoLevel, Process: "core"})
	logger := l.Logger()
	const lines = 200
	sayUnread(t, &logger, lines)
	checkUnread(t, readUntilAfter(t, master, l), lines)
}

// fullPipe returns a writer to a pipe in which there is no room, for whose lines nobody waits.
func fullPipe(t *testing.T) (r *os.File, p *patientWriter) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var full error
	if err := raw.Control(func(fd uintptr) {
		for full == nil {
			_, full = unix.Write(int(fd), make([]byte, 4096)) // the poller's descriptors do not block
		}
	}); err != nil || !errors.Is(full, unix.EAGAIN) {
		t.Fatal(err, full)
	}
	p = newPatientWriter(w)
	p.behind = true
	return r, p
}

// awaitIdle waits until everything is written, or cannot be.
func (w *patientWriter) awaitIdle() {
	for end := time.Now().Add(time.Minute); !w.isIdle() && time.Now().Before(end); {
		w.flush()
	}
}

// Lines that were lost are said once: by the line that has taken it on if that is held, whoever's is dropped meanwhile, and by
// another one if it is dropped or cannot be written, whoever's is held.
func TestLostIsSaidOnce(t *testing.T) {
	small, large := []byte("small\n"), make([]byte, mostHeld)
	r, p := fullPipe(t)
	p.lost = 5
	p.writeSaying(small, p.lostLines())
	_, _ = p.Write(large)
	if n := p.lostLines(); n != 1 {
		t.Errorf("5 lines are said to be lost, another one was: %d are to be said", n)
	}
	p.writeSaying(large, 5)
	_, _ = p.Write(small)
	if n := p.lostLines(); n != 6 {
		t.Errorf("5 lines were lost, and the one that says so: %d are to be said", n)
	}
	p.writeSaying(small, 5)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	p.awaitIdle()
	if n := p.lostLines(); n != 3+2*5 {
		t.Errorf("three lines cannot be written, two of which say that 5 were lost: %d are to be said", n)
	}
}

// So it is in the form for people.
func TestLostIsSaidToPeople(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	l := New(w, Options{Level: zerolog.InfoLevel, Console: true})
	l.patient.lost = 5
	logger := l.Logger()
	logger.Info().Msg("after")
	l.patient.awaitIdle()
	if text := inPipe(t, r); !bytes.HasSuffix(text, []byte("after lost=5\n")) {
		t.Errorf("%q", text)
	}
	if n := l.patient.lostLines(); n != 0 {
		t.Errorf("%d are to be said again", n)
	}
}

// What was said while the reader was slow is written when the process ends, if the reader is back by then.
func TestFlush(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := New(w, Options{Level: zerolog.InfoLevel})
	logger := l.Logger()
	for !l.patient.isBehind() {
		logger.Info().Str("long", strings.Repeat("x", 1000)).Msg("said")
	}
	logger.Info().Msg("the last")
	over := make(chan struct{})
	go func() {
		l.Flush() // nobody reads: it waits for a moment
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("the end waits for a reader")
	}
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r)
		text <- all
	}()
	for end := time.Now().Add(time.Minute); !l.patient.isIdle() && time.Now().Before(end); {
		l.Flush()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if all := <-text; !bytes.HasSuffix(all, []byte("\"message\":\"the last\"}\n")) {
		t.Errorf("the last line is %q", all[max(0, len(all)-200):])
	}
}

// isBehind reports whether nobody waits for lines to be written.
func (w *patientWriter) isBehind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.behind
}

// A file is written to before Write returns, by whoever says something: it has no reader.
func TestLogInFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if newPatientWriter(f) != nil {
		t.Error("a file is waited for")
	}
	l := New(f, Options{Level: zerolog.InfoLevel})
	logger := l.Logger()
	logger.Info().Msg("said")
	l.Flush()
	if text, err := os.ReadFile(f.Name()); err != nil || !strings.Contains(string(text), "said") {
		t.Errorf("%q, %v", text, err)
	}
}
