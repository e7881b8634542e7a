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
)

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
	// What there was room for.
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	kept, err := io.ReadAll(r)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
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
