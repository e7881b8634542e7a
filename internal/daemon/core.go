package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/rdmad/rdmad/internal/config"
)

// The descriptors that the supervisor hands to the core.
const (
	// handoffFD is a pipe with the handoff as JSON.
	handoffFD = 3 + iota
	// lifelineFD is a pipe whose other end only the supervisor holds: it ends
	// when the supervisor dies.
	lifelineFD
	// socketFD is the listening Unix socket for workers.
	socketFD
	// bootstrapFD is the listening TCP socket for peers; absent without one.
	bootstrapFD
)

// handoff is what the supervisor tells the core.
type handoff struct {
	Supervisor int `json:"supervisor"`
	// Source and Data are the name and the bytes of the configuration, so that
	// both processes work from the same.
	Source    string `json:"source"`
	Data      []byte `json:"data"`
	Bootstrap bool   `json:"bootstrap"`
}

// StatusNoStart is the exit status of a core that could not start: what it was
// configured for is not to be had here. The supervisor gives up if the first core
// ends with it, and keeps trying with later ones, whose device may come back.
const StatusNoStart = 4

// StartError is returned by Core when it could not start; its process is to exit
// with StatusNoStart.
type StartError struct{ Err error }

// Error returns the cause's text.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Core runs the core: the process that owns the fabric and moves the messages.
// The supervisor starts it as "rdmad core" with the descriptors above. It returns
// when it was told to stop by SIGTERM or SIGINT and has drained, or on failure, with
// a *StartError if it has never been ready.
//
// Everything of the fabric is created here, after the last fork: nothing that a
// device hands out is ever inherited by another process.
func Core() error {
	h, err := readHandoff()
	if err != nil {
		return fmt.Errorf("core: %w (the core is started by \"rdmad run\", not by hand)", err)
	}
	ready := false
	err = core(h, &ready)
	if err != nil && !ready {
		return &StartError{err}
	}
	return err
}

// core is Core with what the supervisor has handed over.
func core(h *handoff, ready *bool) error {
	cfg, err := config.Parse(h.Source, h.Data)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	log := NewLogger(cfg, os.Stderr).With().Str("node", cfg.Node.Name).Logger()
	socket, err := listenerFrom(socketFD)
	if err != nil {
		return fmt.Errorf("core: worker socket: %w", err)
	}
	workers, ok := socket.(*net.UnixListener)
	if !ok {
		return errors.New("core: the worker socket is not a Unix socket")
	}
	workers.SetUnlinkOnClose(false) // the supervisor's
	var bootstrap net.Listener
	if h.Bootstrap {
		if bootstrap, err = listenerFrom(bootstrapFD); err != nil {
			return fmt.Errorf("core: bootstrap socket: %w", err)
		}
	}
	// An agent in a short wait keeps its processor: leave enough for the rest.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 2) + cfg.Agent.Count)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		lifeline := os.NewFile(lifelineFD, "lifeline")
		_, _ = io.Copy(io.Discard, lifeline) // returns when the supervisor is gone
		log.Error().Msg("the supervisor is gone")
		cancel()
	}()
	c, err := newConductor(cfg, h.Supervisor, log)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	log.Info().Int("pid", pid).Str("incarnation", c.incarnation).Str("socket", cfg.Node.Socket).Str("listen", cfg.Node.Listen).Msg("core ready")
	*ready = true
	return c.serve(ctx, workers, bootstrap)
}

func readHandoff() (*handoff, error) {
	f := os.NewFile(handoffFD, "handoff")
	if f == nil {
		return nil, errors.New("no handoff descriptor")
	}
	defer f.Close()
	return decodeHandoff(f)
}

func decodeHandoff(r io.Reader) (*handoff, error) {
	data, err := io.ReadAll(io.LimitReader(r, config.MaxFileSize*2))
	if err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	var h handoff
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	return &h, nil
}

func listenerFrom(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	return net.FileListener(f)
}
