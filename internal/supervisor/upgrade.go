package supervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/version"
)

// openPath opens a program without the right to read it.
const openPath = unix.O_PATH | unix.O_CLOEXEC

// The bounds of an upgrade's steps.
const (
	handOverTimeout = 5 * time.Second
	readyTimeout    = 10 * time.Second
)

// upgrade replaces the core by the program at path, if that can go on where it ends. If none runs, the program is
// what is started next.
func (s *supervisor) upgrade(ctx context.Context, runs bool) {
	s.backup.Tell("WATCHDOG=1\nSTATUS=The core is being replaced" + s.extension(0))
	u := &status.Upgrade{Number: 1, At: time.Now().UTC()}
	if s.upgraded != nil {
		u.Number += s.upgraded.Number
	}
	s.upgraded = u
	next, err := s.successor(ctx, u)
	switch {
	case err != nil:
		u.Result, s.upgrading = status.UpgradeRefused, false
	case !runs:
		s.use(next)
		s.pause()
		s.upgrading = true
		u.Result = status.UpgradeDone
		s.log.Info().Str("from", u.From.Version).Str("to", u.To.Version).Msg("there is no core; the program is started next")
		return
	default:
		u.Result, err = s.replace(ctx, next)
	}
	if err == nil && !s.core.known {
		return // follow sees when it is
	}
	if err == nil {
		s.served()
		s.log.Info().Str("from", u.From.Version).Str("to", u.To.Version).Float64("pause_ms", u.PauseMS).Msg("the core was replaced")
		return
	}
	u.Reason = printable.Limited(strings.ReplaceAll(err.Error(), "\n", "; "), maxProblem)
	event.UpgradeFailed.On(&s.log).Err(err).Str("result", u.Result).Str("program", s.path).Msg("the core was not replaced")
	if runs && s.core.known {
		s.backup.Tell("WATCHDOG=1\nSTATUS=Node " + s.cfg.Node.Name + " serves " + s.cfg.Node.Socket)
		s.tell()
	}
}

// successor opens the program at path, asks it for its versions, and returns an error if it could not go on with what
// is kept.
func (s *supervisor) successor(ctx context.Context, u *status.Upgrade) (*executable, error) {
	anything, err := s.keptVersions(&u.From)
	if err != nil {
		return nil, err
	}
	next, err := openExecutable(s.path, s.path)
	if err != nil {
		return nil, err
	}
	if err = probe(ctx, next, &u.To); err == nil && anything {
		err = u.To.Adopts(u.From)
	}
	if err == nil {
		err = s.filesUsable()
	}
	if err != nil {
		next.close()
		return nil, err
	}
	return next, nil
}

// use makes a program the one that is started from now on.
func (s *supervisor) use(next *executable) {
	s.exe.close()
	s.exe = next
}

// replace ends the core that runs and starts one of another program. If that does not become ready, the program before
// is started again, which has all the time that any core has, or the new one, if the one before could not go on any more. So it is
// if the daemon is told to stop meanwhile: when the core has handed over only another one can drain what is under way.
func (s *supervisor) replace(ctx context.Context, next *executable) (result string, err error) {
	// Each step has its limit, together they are more than the watchdog's time.
	s.backup.Tell("WATCHDOG=1")
	s.pause()
	s.upgrading = true
	s.core.end(syscall.SIGUSR1, handOverTimeout)
	s.backup.Tell("WATCHDOG=1")
	if err = s.succeed(ctx, next); err == nil {
		s.use(next)
		return status.UpgradeDone, nil
	}
	if why := s.outgrown(); why != nil {
		s.backup.Tell("WATCHDOG=1\nSTATUS=The new core has ended and is started again" + s.extension(0))
		s.use(next)
		event.CoreDied.On(&s.log).Err(errors.Join(err, s.startAgain())).AnErr("before", why).Msg("the new core is started again: the program before could not go on any more")
		return status.UpgradeDone, nil
	}
	s.backup.Tell("WATCHDOG=1\nSTATUS=The core was not replaced, and the one before is started again" + s.extension(0))
	next.close()
	return status.UpgradeUndone, errors.Join(err, s.startAgain())
}

// startAgain starts a core in the course of an upgrade. If that fails, it is tried again as after any death.
func (s *supervisor) startAgain() error {
	core, err := s.startCore(s.exe)
	if err == nil {
		s.core = core
	}
	return err
}

// outgrown returns why the program before an upgrade could not go on with what is kept by now, which the new one may have made its own
// before it ended: it would drop everything. A program that had kept nothing has nothing to go on with.
func (s *supervisor) outgrown() error {
	var now version.Set
	if anything, err := s.keptVersions(&now); err != nil || !anything || s.upgraded.From == (version.Set{}) {
		return nil // which the core that is started says
	}
	return s.upgraded.From.Adopts(now)
}

// filesUsable returns an error if the files of [tls] are such that a core which starts now would have no peers, as
// the one that runs has.
func (s *supervisor) filesUsable() error {
	if s.cfg.TLS.Mode != config.TLSRequired {
		return nil
	}
	m, err := nodecert.Load(nodecert.Open, nodecert.Files{Cert: s.cfg.TLS.Cert, Key: s.cfg.TLS.Key, CA: s.cfg.TLS.CA})
	if err == nil && m.Node != s.cfg.Node.Name {
		err = m.Usable(s.cfg.Node.Name, time.Now())
	}
	if err != nil {
		return fmt.Errorf("a new core could not use the files of [tls], and so no peer could connect: %w (see: rdmad doctor)", err)
	}
	return nil
}

// keptVersions finds out what the core has that serves, or has served last, and whether there was any.
func (s *supervisor) keptVersions(v *version.Set) (kept bool, err error) {
	meta := s.depot.Meta(handoff.NodeKey)
	if meta == nil {
		return false, nil
	}
	var n handoff.Node
	if err := json.Unmarshal(meta, &n); err != nil {
		return false, fmt.Errorf("what is kept of the last core: %w", err)
	}
	*v = n.Versions
	return true, nil
}

// succeed starts a core with a program and waits until it is ready, whatever becomes of ctx: if the daemon is to stop, the
// service manager is told so meanwhile. One that does not become ready is killed.
func (s *supervisor) succeed(ctx context.Context, e *executable) error {
	core, err := s.startCore(e)
	if err != nil {
		return err
	}
	s.core = core
	return s.awaitSuccessor(ctx)
}

// awaitSuccessor is the wait of succeed.
func (s *supervisor) awaitSuccessor(ctx context.Context) error {
	core := s.core
	limit := cmp.Or(s.setup.ReadyLimit, readyTimeout)
	late := time.NewTimer(limit)
	defer late.Stop()
	patience, stop := s.newPatience()
	defer stop()
	for stopping := ctx.Done(); ; {
		var err error
		select {
		case <-core.link.Ready():
		case <-stopping:
			s.tellStopping(limit)
			stopping = nil
			continue
		case <-patience.ticks:
			s.backup.Tell("WATCHDOG=1" + s.extension(0))
			continue
		case <-core.ended:
			err = fmt.Errorf("the new core did not start: %w", cmp.Or(core.err, errUntold))
		case <-late.C:
			err = fmt.Errorf("the new core was not ready after %v", limit)
		}
		// More than one of them may be there, and any is chosen: the end of a core that has served is like any other.
		select {
		case <-core.link.Ready():
			core.known = true
			return nil
		default:
		}
		core.end(syscall.SIGKILL, readyTimeout)
		return err
	}
}

// toldErrors is how many distinct errors the core is told of: they must fit a message of the depot.
const toldErrors = 16

// tell tells the core what it has to say of the supervisor.
func (s *supervisor) tell() {
	errs := s.setup.Log.Errors()
	n := handoff.Note{Upgrade: s.upgraded, Reload: s.reloaded, Errors: errs[:min(len(errs), toldErrors)]}
	var err error
	if s.applied { // also if the core has not heard of it, and the last one was refused
		for _, p := range handoff.PartsOf(s.cfg) {
			if err = s.depot.Note(handoff.Note{Part: p}); err != nil {
				break // the rest is worth nothing without
			}
		}
	}
	err = errors.Join(err, s.depot.Note(n))
	if err != nil && !s.untold {
		event.NoteLost.On(&s.log).Err(err).Msg("the core does not know what the supervisor has to say")
	}
	s.untold = err != nil
}
