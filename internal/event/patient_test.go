package event

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
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

// A log that nobody reads costs the daemon a moment, and lines; the next one that is read says how many.
func TestUnreadLog(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := New(w, Options{Level: zerolog.InfoLevel, Process: "core"})
	logger := l.Logger()
	began := time.Now()
	const lines = 2000
	long := strings.Repeat("x", 1000)
	for range lines {
		logger.Info().Str("long", long).Msg("said")
	}
	logger.Info().Str("long", strings.Repeat(long, 10)).Msg("said")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
	kept := inPipe(t, r) // what there was room for
	seen := bytes.Count(kept, []byte("\n"))
	if seen == 0 || seen >= lines || bytes.Contains(kept, []byte("lost")) {
		t.Errorf("%d of %d lines were kept", seen, lines)
	}
	logger.Info().Msg("after")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`"message":"after","lost":%d}`, lines+1-seen); !strings.Contains(string(rest), want) {
		t.Errorf("%s, want %s", rest, want)
	}
}
