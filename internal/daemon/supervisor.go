package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
)

// ErrInUse is returned by Supervise when another daemon has the socket.
var ErrInUse = errors.New("the socket is in use")

// The waits before a crashed core is started again.
const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 5 * time.Second
	// healthy is how long a core must have run for the waits to start anew.
	healthy = 10 * time.Second
)

// Supervise runs a node: it takes the socket, starts the core and starts it
// again when it crashes, until ctx ends; then it lets the core drain and
// returns. source and data are the name and the content of the config file that
// cfg was parsed from. The supervisor never opens a device.
//
// Errors: ErrInUse, or what keeps the sockets from being opened or the core from
// starting.
func Supervise(ctx context.Context, cfg *config.Config, source string, data []byte, log zerolog.Logger) error {
	s := &supervisor{cfg: cfg, log: log}
	defer s.close()
	if err := s.open(); err != nil {
		return err
	}
	wait := firstRestart
	for {
		start := time.Now()
		err := s.runCore(ctx, source, data)
		if ctx.Err() != nil {
			return err
		}
		s.cores++
		if s.cores == 1 && exitStatus(err) == StatusNoStart {
			return errors.New("the core cannot start")
		}
		if time.Since(start) > healthy {
			wait = firstRestart
		}
		log.Error().Err(err).Dur("restart_in", wait).Msg("the core died")
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, lastRestart)
	}
}

type supervisor struct {
	cfg       *config.Config
	log       zerolog.Logger
	lock      *os.File
	socket    *os.File
	bootstrap *os.File // nil without peers
	cores     int
}

// exitStatus returns the exit status of a core, -1 if it was killed.
func exitStatus(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return -1
	}
	return exit.ExitCode()
}

// open takes the lock and opens the listening sockets.
func (s *supervisor) open() error {
	path := s.cfg.Node.Socket
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("directory of node.socket: %w", err)
	}
	if err := s.takeLock(path + ".lock"); err != nil {
		return err
	}
	// The lock is ours, so what lies there is left over from a dead daemon.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("old socket: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("node.socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(path, s.cfg.Node.SocketMode); err != nil {
		return fmt.Errorf("node.socket_mode: %w", err)
	}
	if s.socket, err = l.File(); err != nil {
		return fmt.Errorf("node.socket: %w", err)
	}
	if s.cfg.Node.Listen == "" {
		return nil
	}
	t, err := net.Listen("tcp", s.cfg.Node.Listen)
	if err != nil {
		return fmt.Errorf("node.listen: %w", err)
	}
	defer t.Close()
	if s.bootstrap, err = t.(*net.TCPListener).File(); err != nil {
		return fmt.Errorf("node.listen: %w", err)
	}
	return nil
}

// takeLock locks path for the life of this process.
func (s *supervisor) takeLock(path string) error {
	for s.lock == nil {
		if err := s.tryLock(path); err != nil {
			return err
		}
	}
	if err := s.lock.Truncate(0); err != nil {
		return fmt.Errorf("lock file: %w", err)
	}
	if _, err := fmt.Fprintf(s.lock, "%d\n", os.Getpid()); err != nil {
		return fmt.Errorf("lock file: %w", err)
	}
	return nil
}

// tryLock sets lock, unless the daemon that had the file has removed it between
// our opening and our locking it.
func (s *supervisor) tryLock(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := make([]byte, 16)
		n, _ := f.ReadAt(holder, 0)
		_ = f.Close()
		return fmt.Errorf("%w: another rdmad (pid %s) serves %s", ErrInUse, strings.TrimSpace(string(holder[:n])), s.cfg.Node.Socket)
	}
	locked, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("lock file: %w", err), f.Close())
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(there, locked) {
		return f.Close()
	}
	s.lock = f
	return nil
}

// close gives everything back. The lock file goes last and while it is locked.
func (s *supervisor) close() {
	if s.socket != nil {
		_ = os.Remove(s.cfg.Node.Socket)
		_ = s.socket.Close()
	}
	if s.bootstrap != nil {
		_ = s.bootstrap.Close()
	}
	if s.lock != nil {
		_ = os.Remove(s.lock.Name())
		_ = s.lock.Close()
	}
}

// runCore starts a core and waits until it has ended. When ctx ends the core is
// told to drain, and killed if it takes much longer than it may.
func (s *supervisor) runCore(ctx context.Context, source string, data []byte) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "core")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C at the terminal is ours to pass on
	h, err := json.Marshal(handoff{Supervisor: os.Getpid(), Source: source, Data: data, Bootstrap: s.bootstrap != nil})
	if err != nil {
		return err
	}
	handoffR, handoffW, err := os.Pipe()
	if err != nil {
		return err
	}
	lifelineR, lifelineW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, handoffR.Close(), handoffW.Close())
	}
	defer lifelineW.Close()
	cmd.ExtraFiles = []*os.File{handoffR, lifelineR, s.socket}
	if s.bootstrap != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.bootstrap)
	}
	err = cmd.Start()
	_ = handoffR.Close()
	_ = lifelineR.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("start the core: %w", err), handoffW.Close())
	}
	// A core that dies before it has read makes this fail; Wait says why.
	_, _ = handoffW.Write(h)
	_ = handoffW.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		return err
	case <-time.After(s.cfg.Node.DrainTimeout + 10*time.Second):
		s.log.Error().Msg("the core does not stop; killing it")
		_ = cmd.Process.Kill()
		return <-ended
	}
}
