// Package supervisor is the process that a user starts: it owns the sockets, starts the core,
// starts it again when it dies, and replaces it by another program or configuration. It keeps
// what a core has put into the depot for the next one, and never opens a device.
package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/status"
)

// Run runs a node: it takes the socket, starts the core and starts it
// again when it dies, until ctx ends; then it lets the core drain and
// returns. What a core has put into
// the depot is given to the next one, so that workers stay attached. SIGHUP to the process reloads the
// configuration, and SIGUSR2 replaces the core by the program that is now where this one was started from.
//
// Errors: ErrInUse, or what keeps the sockets from being opened or the core from
// starting.
func Run(ctx context.Context, what Setup) error {
	s := &supervisor{cfg: what.Config, setup: what, log: what.Log.Logger(), upgrades: make(chan os.Signal, 1), reloads: make(chan os.Signal, 1)}
	// Before anything that takes time: otherwise they end the process.
	signal.Notify(s.upgrades, syscall.SIGUSR2)
	defer signal.Stop(s.upgrades)
	signal.Notify(s.reloads, syscall.SIGHUP)
	defer signal.Stop(s.reloads)
	defer nodelog.OutliveReader()()
	defer what.Log.Flush()
	defer s.close()
	passed := depot.TakePassed()
	var err error
	if s.backup, err = depot.OpenBackup(passed, s.notKept); err != nil {
		return err
	}
	if s.watchdog, err = systemd.SdWatchdogEnabled(true); err != nil {
		return fmt.Errorf("watchdog of the service manager: %w", err)
	}
	if err := s.open(passed.Sockets); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	return s.run(ctx)
}

type supervisor struct {
	cfg       *config.Config
	setup     Setup
	log       zerolog.Logger
	lock      *os.File
	pidFile   os.FileInfo // nil until it is there
	socket    *os.File
	bootstrap *os.File // nil without peers
	// observe are the listening sockets for HTTP: the Unix socket and that of TCP; nil for
	// those that there are not.
	observe [handoff.Observers]*os.File
	// observeFile is what the Unix socket is in the file system, nil if there is none; so is socketFile for workers.
	observeFile, socketFile os.FileInfo
	depot                   *depot.Store
	// upgrades and reloads receive the signals for them.
	upgrades, reloads chan os.Signal
	// activated: the sockets are the service manager's.
	activated bool
	// watchdog is how often the service manager wants to hear that all is well; 0: never.
	watchdog time.Duration
	backup   *depot.Backup  // nil without a service manager that keeps descriptors
	pulse    *handoff.Pulse // nil if nobody has to know whether the core makes progress
	// exe is the program of the core that runs, or ran last, and path where upgrades
	// are found.
	exe  *executable
	path string
	// core is the one that runs, or ran last.
	core *runningCore
	// ready: a core of this supervisor has served.
	ready bool
	// upgraded is how the last upgrade went; nil before the first. upgrading: no core has served since.
	upgraded  *status.Upgrade
	upgrading bool
	// pauseBegan is since when no core serves; zero while one does, or if none has.
	pauseBegan time.Time
	// reloaded is how the last reload went; nil before the first.
	reloaded *status.Reload
	// applied: a reload has put another configuration in force, which cores must be told of.
	applied bool
	// untold: the core was not told what it should have been, which has been said.
	untold bool
}

// spareFDs are the descriptors that the supervisor needs besides those of the depot.
const spareFDs = 64

// prepare opens the program and makes the depot.
func (s *supervisor) prepare() (err error) {
	if s.path, err = programPath(os.Args[0]); err != nil {
		return err
	}
	if s.exe, err = openExecutable("/proc/self/exe", s.path); err != nil {
		return err
	}
	if s.beatEvery() > 0 {
		if s.pulse, err = handoff.NewPulse(); err != nil {
			return err
		}
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	most := int(min(files.Cur, 1<<30)) - spareFDs
	s.depot = depot.NewStore(depot.Limits{Items: config.MaxKept, FDs: most}, s.notKept)
	if s.backup == nil {
		return nil
	}
	if err := s.backup.Restore(s.depot); err != nil {
		return err
	}
	items, fds := s.depot.Size()
	s.log.Info().Int("items", items).Int("descriptors", fds).Msg("the service manager keeps what the core needs")
	return nil
}

// notKept is told of what the next core, or the next supervisor, will not have.
func (s *supervisor) notKept(err error) {
	if errors.Is(err, depot.ErrManager) {
		event.ManagerDeaf.On(&s.log).Err(err).Msg("the service manager does not listen")
		return
	}
	event.NotKept.On(&s.log).Err(err).Msg("not kept for the next core")
}

// run keeps a core running until ctx ends. One that dies instead of draining, or is dead just then, is followed by one more, which
// drains what is under way.
func (s *supervisor) run(ctx context.Context) error {
	var again restarts
	// A core that cannot start ends the first one's supervisor, but not that of attached processes
	// whose memory the service manager has kept: it would be lost to a mistake that can be mended.
	kept, _ := s.depot.Size()
	left := false // the last core has left before it was ready, without a word
	last := false // the core that runs was started after the end of ctx
	for first := kept == 0; ; {
		core, err := s.startCore(s.exe)
		if err == nil {
			faultpoint.Here("supervise.started")
			s.core = core
			err = s.follow(ctx)
		}
		switch {
		case first && core == nil:
			return err
		case first && s.core == core && (exitStatus(err) == handoff.StatusNoStart || exitStatus(err) > 0 && !core.known && ctx.Err() == nil):
			// The former also if the daemon was told to stop meanwhile. The latter is a program's own end, such as that of
			// a service in the core that calls log.Fatal, and the next core's, too.
			event.CoreNoStart.On(&s.log).Msg("the core cannot start; see its last line")
			return errors.New("the core cannot start")
		case ctx.Err() != nil && (last || !s.undrained(err)):
			return err
		}
		// Perhaps somebody has told all processes of the daemon to stop, and this one is about to hear of it. If not, it is the
		// program's own end, such as that of a service in the core that calls os.Exit(0).
		leaves := err == nil && !core.known && s.core == core
		if first && left && leaves {
			event.CoreNoStart.On(&s.log).Err(errUntold).Msg("the core cannot start")
			return fmt.Errorf("the core cannot start: %w before it was ready, twice", errUntold)
		}
		first, left = first && leaves, leaves
		faultpoint.Here("supervise.ended")
		upgrades, served := s.upgrades, core != nil && s.core.known
		if served {
			s.pause()
			upgrades = nil // the program has served: replaced while it runs, it is what a failed upgrade falls back to
		}
		wait := again.next(time.Now(), served)
		event.CoreDied.On(&s.log).Err(cmp.Or(err, errUntold)).Dur("restart_in", wait).Msg("the core died")
		// Nothing hangs while there is no core, and the next one has all the time again.
		s.backup.Tell("WATCHDOG=1\nSTATUS=The core died and is started again" + s.extension(wait))
		select {
		case <-time.After(wait):
		case <-upgrades:
			s.upgrade(ctx, false)
		case <-ctx.Done():
		}
		if ctx.Err() == nil {
			continue
		}
		if !s.undrained(err) {
			return nil
		}
		last = true
		s.tellStopping(0)
	}
}

// undrained reports whether a core that has ended like this has left something for another one to drain. One that has drained, or has had
// its time for that, has not.
func (s *supervisor) undrained(err error) bool {
	kept, _ := s.depot.Size()
	return kept > 0 && err != nil && exitStatus(err) != handoff.StatusUndrained && !errors.Is(err, errKilled)
}

// startPatience is how long the service manager is to wait for a core that is started again.
const startPatience = 90 * time.Second

// extension asks the service manager for more time than it gives a service to start, if the first core
// of this supervisor has not served yet: stopped, the supervisor would drop what is kept.
func (s *supervisor) extension(wait time.Duration) string {
	if s.ready {
		return ""
	}
	return fmt.Sprintf("\nEXTEND_TIMEOUT_USEC=%d", (wait + startPatience).Microseconds())
}

// tellErrorsEvery is how often the core is told of the supervisor's errors at most.
const tellErrorsEvery = time.Second

// heedAgain is after what time the service manager is told again what it has not heard.
const heedAgain = 2 * time.Second

// stopGrace is how long a core may take to end besides its drain. The service manager is given twice that, so that it has
// not lost its patience when it is told again after once that.
const stopGrace = 10 * time.Second

// follow returns when the core has ended, and how. When ctx ends the core is told to
// drain, and killed if it takes much longer than it may. One that makes no progress is ended.
func (s *supervisor) follow(ctx context.Context) error {
	changed, later := s.setup.Log.Changed(), (<-chan time.Time)(nil)
	patience, stop := s.newPatience()
	defer stop()
	var heed <-chan time.Time
	for {
		if heed == nil && s.backup.Owes() {
			heed = time.After(heedAgain)
		}
		if s.untold && later == nil {
			later = time.After(tellErrorsEvery)
		}
		ready := s.core.link.Ready()
		if s.core.known {
			ready = nil
		}
		select {
		case <-s.core.ended:
			// Both may be there, and only one of them is chosen: a core that has served is
			// followed at once.
			select {
			case <-ready:
				s.served()
			default:
			}
			return s.core.err
		case <-ready:
			s.served()
		case now := <-patience.ticks:
			over, alive := patience.count(now, s.pulse.Beats.Load(), s.core.known)
			if alive {
				s.backup.Tell("WATCHDOG=1" + s.extension(0))
			}
			if over {
				return s.giveUp()
			}
		case <-heed:
			heed = nil
			s.backup.Heed()
		case <-s.upgrades:
			s.upgrade(ctx, true)
			patience.starting = 0
		case <-s.reloads:
			s.reload()
		case <-changed:
			// Not each of many.
			changed, later = nil, time.After(tellErrorsEvery)
		case <-later:
			changed, later = s.setup.Log.Changed(), nil
			s.tell()
		case <-ctx.Done():
			s.tellStopping(0)
			stuck, settled := s.stuck(patience)
			err := s.core.stop(s.cfg.Node.DrainTimeout+stopGrace, stuck, s.log, func() { s.tellStopping(0) })
			settled()
			if errors.Is(err, errHung) {
				return s.giveUp() // what it had to drain is for one that follows it
			}
			return err
		}
	}
}

// tellStopping tells the service manager that the daemon stops, and how long that may take after a wait. It counts from
// when it is told last.
func (s *supervisor) tellStopping(wait time.Duration) {
	s.backup.Tell(fmt.Sprintf("STOPPING=1\nEXTEND_TIMEOUT_USEC=%d\nSTATUS=Draining", (wait + s.cfg.Node.DrainTimeout + 2*stopGrace).Microseconds()))
}

// pause notes that no core serves any more.
func (s *supervisor) pause() {
	if s.pauseBegan.IsZero() {
		s.pauseBegan = time.Now()
	}
}

// served notes that the core that runs is ready.
func (s *supervisor) served() {
	s.core.known, s.ready = true, true
	if s.upgrading {
		s.upgraded.PauseMS = float64(time.Since(s.pauseBegan).Microseconds()) / 1000
	}
	s.upgrading, s.pauseBegan = false, time.Time{}
	s.backup.Tell("READY=1\nSTATUS=Node " + s.cfg.Node.Name + " serves " + s.cfg.Node.Socket)
	s.tell()
}
