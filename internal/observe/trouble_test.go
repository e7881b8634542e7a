package observe

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/event"
)

// flaky is a listener whose first Accept fails as one does without descriptors.
type flaky struct {
	net.Listener
	failed bool
}

func (l *flaky) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// What package http has to say is an event, not a line on standard error.
func TestTroublesAreEvents(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := event.New(io.Discard, event.Options{Level: zerolog.InfoLevel, Process: "core"})
	s := New(Options{Source: newFake(t), Log: log.Logger()})
	done := make(chan error, 1)
	go func() { done <- s.Serve(&flaky{Listener: l}, false) }()
	defer func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-log.Changed():
	case <-time.After(patient):
		t.Fatal("nothing is said")
	}
	list := log.Errors()
	if len(list) != 1 || list[0].Code != event.ObserveTrouble || !strings.Contains(list[0].Text, "too many open files") {
		t.Errorf("%+v", list)
	}
}
