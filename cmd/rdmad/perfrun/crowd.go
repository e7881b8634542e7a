package perfrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/perf"
)

// lead measures with a client that is several processes, which it starts.
func (o *Options) lead(ctx context.Context, src perf.Source, address string, tool perf.Crowd) (result any, err error) {
	host := ownAddress(ctx, address)
	// Before anything is started; the members open it for themselves.
	n, err := open(src, host)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tool.Check(n.Caps()), n.Close()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var members []*member
	start := func(context.Context) (net.Conn, error) {
		m, conn, err := o.startMember(ctx, host)
		if err == nil {
			members = append(members, m)
		}
		return conn, err
	}
	result, err = perf.Muster(ctx, src, address, tool, start, o.connected)
	return result, errors.Join(err, o.dissolve(members, err == nil))
}

// member is a process of the crowd.
type member struct {
	cmd  *exec.Cmd
	said words
}

// mostWords is how much of what a member writes is kept: all goroutines of a panic that has few.
const mostWords = 16 << 10

// words keeps the first mostWords bytes of what is written.
type words []byte

// Write implements io.Writer.
func (w *words) Write(p []byte) (int, error) {
	*w = append(*w, p[:min(len(p), mostWords-len(*w))]...)
	return len(p), nil
}

// unheard reports whether the words are others than an error's, which the leader has been told by
// the connection: those of a panic, or of the system's loader.
func (w words) unheard() bool { return len(w) > 0 && !bytes.HasPrefix(w, []byte("rdmad: ")) }

// startMember starts a process with one end of a connection, and returns the other.
func (o *Options) startMember(ctx context.Context, host string) (*member, net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("perf: %w", err)
	}
	own, theirs := os.NewFile(uintptr(fds[0]), "member"), os.NewFile(uintptr(fds[1]), "leader")
	defer func() { _ = errors.Join(own.Close(), theirs.Close()) }() // they have been copied
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, nil, fmt.Errorf("perf: %w", err)
	}
	cmd := exec.CommandContext(ctx, o.Program, append(append([]string{}, o.Arguments...), append(o.Fabric.Flags(), "--member", host)...)...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.WaitDelay = childTime
	m := &member{cmd: cmd}
	cmd.Stderr = &m.said
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("perf: a client cannot be started: %w", err), conn.Close())
	}
	return m, conn, nil
}

// dissolve waits for the end of all members, which know that it is over: they end with their
// connection. Well says that they have to do so without an error. What nobody has heard of them is
// written to the remarks.
func (o *Options) dissolve(members []*member, well bool) error {
	timer := time.AfterFunc(childTime, func() {
		for _, m := range members {
			_ = m.cmd.Process.Kill()
		}
	})
	defer timer.Stop()
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			if err := m.cmd.Wait(); err != nil && well {
				errs[i] = fmt.Errorf("perf: client %d: %w", i, err)
			}
		})
	}
	all.Wait()
	for i, m := range members {
		if m.said.unheard() {
			fmt.Fprintf(o.Remarks, "rdmad: perf: client %d has written:\n%s\n", i, bytes.TrimSpace(m.said))
		}
	}
	return errors.Join(errs...)
}

// member is a process that lead has started. What it has to say it says to its leader.
func (o *Options) member(ctx context.Context, src perf.Source, tool perf.Tool) error {
	conn, err := net.FileConn(os.NewFile(inherited, "leader"))
	if err != nil {
		return perf.Inputf("--member: it is for rdmad itself: %w", err)
	}
	return perf.Enlist(ctx, src, conn, o.Member, tool)
}
