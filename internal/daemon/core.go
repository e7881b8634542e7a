package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/nodelog"
)

// errHandOver is returned by Core when it has been told to hand over.
var errHandOver = errors.New("handed over")

// errUndrained is returned by Core when its time to drain was over before all was done.
var errUndrained = errors.New("drain timeout: some requests were still under way")

// ExitStatus returns the status that a core's process is to exit with for an error of
// Core.
func ExitStatus(err error) int {
	var start *StartError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &start):
		return handoff.StatusNoStart
	case errors.Is(err, errHandOver):
		return handoff.StatusHandOver
	case errors.Is(err, errUndrained):
		return handoff.StatusUndrained
	}
	return 1
}

// StartError is returned by Core when it could not start; its process is to exit
// with handoff.StatusNoStart.
type StartError struct{ Err error }

// Error returns the cause's text.
func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Core runs the core: the process that owns the fabric and moves the messages.
// The supervisor starts it as "rdmad core" with the descriptors of package handoff. It returns
// when it was told to stop by SIGTERM or SIGINT, or by the end of ctx, and has drained,
// or to hand over by SIGUSR1, or on failure, with a *StartError if it has never been
// ready. ExitStatus says what its process is to exit with. SIGHUP and SIGUSR2 are ignored.
//
// Everything of the fabric is created here, after the last fork: nothing that a
// device hands out is ever inherited by another process.
//
// Tenants are services in this process, for which the core waits before it is ready.
func Core(ctx context.Context, tenants ...Tenant) error {
	// They are for the supervisor: a service manager that is told to send them sends them to all processes of a service.
	signal.Ignore(syscall.SIGHUP, syscall.SIGUSR2)
	// It was started by the number of a descriptor, which says nothing to who looks for it with ps or top.
	_ = os.WriteFile("/proc/self/comm", []byte("rdmad-core"), 0)
	h, err := handoff.Read()
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

// awaitSupervisor calls gone, on another goroutine, when the supervisor is gone, and closes orphaned before.
func awaitSupervisor(log *zerolog.Logger, gone func()) (orphaned <-chan struct{}) {
	end := make(chan struct{})
	go func() {
		awaitOrphanhood()
		close(end)
		event.SupervisorGone.On(log).Msg("the supervisor is gone")
		gone()
	}()
	return end
}

// core is Core with what the supervisor has handed over.
func core(ctx context.Context, h *handoff.Start, tenants []Tenant, ready *bool) error {
	defer nodelog.OutliveReader()()
	faultpoint.Here("core.started")
	cfg, err := config.ParseOwn(h.Source, h.Data)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	events := nodelog.New(cfg, os.Stderr, "core")
	defer events.Flush()
	log := events.Logger().With().Str("node", cfg.Node.Name).Logger()
	given, err := takeInheritance(h)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	// The memory of the beats stays until the process ends: what tells the supervisor that all is well may be at work when this
	// core hands over.

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
	orphaned := awaitSupervisor(&log, func() {
		if h.Backup {
			handOver <- syscall.SIGUSR1 // another one comes, and its core goes on
			return
		}
		cancel()
		endInTime(&running, events, &log)
	})
	told := handoff.NewBriefing(h.Source, h.Overrides)
	store, items, err := depot.Open(os.NewFile(handoff.DepotFD, "depot"), told.Take)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	defer store.Close()
	faultpoint.Here("core.handed")
	c, err := newConductor(cfg, h.Supervisor, orphaned, store, items, len(tenants) > 0, log)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	faultpoint.Here("core.adopted")
	running.Store(c)
	c.begin(h, told, events, given)
	if err := c.settle(ctx, tenants); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it has begun
		}
		return fmt.Errorf("core: %w", err)
	}
	log.Info().Int("pid", ownPID).Str("incarnation", c.incarnation).Str("socket", cfg.Node.Socket).Str("listen", cfg.Node.Listen).Msg("core ready")
	*ready = true
	c.identify()
	if err := store.Ready(); err != nil {
		return fmt.Errorf("core: %w", err)
	}
	faultpoint.Here("core.ready")
	c.show(given.observe)
	return c.serve(ctx, given.bootstrap, handOver)
}

// begin takes what the supervisor has said and given, and lets workers attach.
func (c *conductor) begin(h *handoff.Start, told *handoff.Briefing, events *event.Log, given *inheritance) {
	c.told, c.events = told, events
	c.toldAs.Store(&h.Digest)
	events.Restore(c.identity.Errors)
	c.pulse, c.beatEvery = given.beats, time.Duration(h.BeatNS)
	c.open(given.workers)
	if c.beatEvery > 0 {
		c.spawn(c.watchProgress) // also while tenants take their time
	}
}
