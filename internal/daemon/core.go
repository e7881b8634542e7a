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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
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
	// depotFD is the core's end of the socket to the depot.
	depotFD
	// bootstrapFD is the listening TCP socket for peers; absent without one. Behind it, or
	// in its place, are those for HTTP, as far as they are there, and then the pulse.
	bootstrapFD
)

// handoff is what the supervisor tells the core.
type handoff struct {
	Supervisor int `json:"supervisor"`
	// Source is the name of the configuration and Data what Config.Own has made of it,
	// so that both processes work from the same, whatever becomes of the file and the
	// environment.
	Source    string `json:"source"`
	Data      []byte `json:"data"`
	Bootstrap bool   `json:"bootstrap"`
	// Observe says which sockets for HTTP there are.
	Observe [observers]bool `json:"observe"`
	// Backup: what is kept survives the supervisor.
	Backup bool `json:"backup"`
	// BeatNS is how often the supervisor must know that all is well, in nanoseconds; 0: it need
	// not. Else the last descriptor is that of the pulse.
	BeatNS int64 `json:"beat_ns,omitempty"`
}

// StatusNoStart is the exit status of a core that could not start: what it was
// configured for is not to be had here. The supervisor gives up if the first core
// ends with it, and keeps trying with later ones, whose device may come back.
const StatusNoStart = 4

// StatusHandOver is the exit status of a core that has handed over to the next one.
const StatusHandOver = 5

// errHandOver is returned by Core when it has been told to hand over.
var errHandOver = errors.New("handed over")

// ExitStatus returns the status that a core's process is to exit with for an error of
// Core.
func ExitStatus(err error) int {
	var start *StartError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &start):
		return StatusNoStart
	case errors.Is(err, errHandOver):
		return StatusHandOver
	}
	return 1
}

// StartError is returned by Core when it could not start; its process is to exit
// with StatusNoStart.
type StartError struct{ Err error }

// Error returns the cause's text.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Core runs the core: the process that owns the fabric and moves the messages.
// The supervisor starts it as "rdmad core" with the descriptors above. It returns
// when it was told to stop by SIGTERM or SIGINT, or by the end of ctx, and has drained,
// or to hand over by SIGUSR1, or on failure, with a *StartError if it has never been
// ready. ExitStatus says what its process is to exit with.
//
// Everything of the fabric is created here, after the last fork: nothing that a
// device hands out is ever inherited by another process.
//
// Tenants are services in this process, for which the core waits before it is ready.
func Core(ctx context.Context, tenants ...Tenant) error {
	h, err := readHandoff()
	if err != nil {
		return fmt.Errorf("core: %w (the core is started by \"rdmad run\", not by hand)", err)
	}
	ready := false
	err = core(ctx, h, tenants, &ready)
	if err != nil && !ready {
		return &StartError{err}
	}
	return err
}

// orphanGrace is how long a core whose supervisor is gone may take to end besides its drain.
const orphanGrace = 2 * time.Second

// core is Core with what the supervisor has handed over.
func core(ctx context.Context, h *handoff, tenants []Tenant, ready *bool) error {
	defer outliveLogReader()()
	faultpoint.Here("core.started")
	cfg, err := config.ParseOwn(h.Source, h.Data)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	events := NewLog(cfg, os.Stderr, "core")
	log := events.Logger().With().Str("node", cfg.Node.Name).Logger()
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
	observe, next, err := h.observeListeners()
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	var beats *pulse
	if h.BeatNS > 0 {
		if beats, err = openPulse(next); err != nil {
			return fmt.Errorf("core: the supervisor's pulse: %w", err)
		}
		defer beats.close()
	}
	// An agent in a short wait keeps its processor: leave enough for the rest.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 2) + cfg.Agent.Count)

	handOver := make(chan os.Signal, 1)
	signal.Notify(handOver, syscall.SIGUSR1)
	// ctx may have ended by such a signal already, which the program takes from its start on.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running atomic.Pointer[conductor]
	go func() {
		lifeline := os.NewFile(lifelineFD, "lifeline")
		_, _ = io.Copy(io.Discard, lifeline) // returns when the supervisor is gone
		event.SupervisorGone.On(&log).Msg("the supervisor is gone")
		if h.Backup {
			handOver <- syscall.SIGUSR1 // another one comes, and its core goes on
			return
		}
		cancel()
		// There is nobody else to end a core that hangs, perhaps in a handler.
		patience := orphanGrace
		if c := running.Load(); c != nil {
			patience += c.live().Node.DrainTimeout
		}
		time.AfterFunc(patience, func() {
			event.CoreKilled.On(&log).Msg("the core does not stop, and its supervisor is gone; it ends")
			os.Exit(1)
		})
	}()
	told := newBriefing(h.Source)
	store, items, err := depot.Open(os.NewFile(depotFD, "depot"), told.take)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	defer store.Close()
	faultpoint.Here("core.handed")
	c, err := newConductor(cfg, h.Supervisor, store, items, len(tenants) > 0, log)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	faultpoint.Here("core.adopted")
	running.Store(c)
	c.told, c.events = told, events
	events.Restore(c.identity.Errors)
	c.pulse, c.beatEvery = beats, time.Duration(h.BeatNS)
	c.open(workers)
	if c.beatEvery > 0 {
		c.spawn(c.watchProgress) // also while tenants take their time
	}
	if err := c.settle(ctx, tenants); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it has begun
		}
		return fmt.Errorf("core: %w", err)
	}
	log.Info().Int("pid", pid).Str("incarnation", c.incarnation).Str("socket", cfg.Node.Socket).Str("listen", cfg.Node.Listen).Msg("core ready")
	*ready = true
	c.identify()
	if err := store.Ready(); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	faultpoint.Here("core.ready")
	c.show(observe)
	return c.serve(ctx, bootstrap, handOver)
}

// maxHandoff bounds a handoff: what a configuration can be, as base64.
const maxHandoff = 16 * config.MaxFileSize

func readHandoff() (*handoff, error) {
	f := os.NewFile(handoffFD, "handoff")
	if f == nil {
		return nil, errors.New("no handoff descriptor")
	}
	defer f.Close()
	return decodeHandoff(f)
}

func decodeHandoff(r io.Reader) (*handoff, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxHandoff))
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
