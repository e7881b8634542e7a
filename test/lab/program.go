package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// run runs a command for a client and returns how it ended. When it returns,
// nothing that the command has started is left.
func (a *agent) run(conn net.Conn, req request) exit {
	if info, err := os.Stat(req.Dir); err != nil || !info.IsDir() {
		return exit{statusFailed, fmt.Sprintf("there is no directory %s in the guest", req.Dir)}
	}
	path, err := a.findProgram(req)
	if err != nil {
		return notRun(req.Args[0], err)
	}
	cmd := &exec.Cmd{Path: path, Args: append([]string{path}, req.Args[1:]...), Dir: req.Dir, Env: req.Env}
	p, err := startProgram(cmd, a.groups)
	if err != nil {
		return notRun(req.Args[0], err)
	}
	defer p.group.remove()

	var lock sync.Mutex
	var output sync.WaitGroup
	output.Go(func() { p.forward(p.stdout, frameWriter{&lock, conn, frameStdout}) })
	output.Go(func() { p.forward(p.stderr, frameWriter{&lock, conn, frameStderr}) })
	input := make(chan []byte, 1)
	go p.feed(input, frameWriter{&lock, conn, frameTaken})
	go p.obey(conn, input)

	err = p.wait()
	output.Wait()
	lock.Lock() // the last frame goes through no frameWriter
	defer lock.Unlock()
	return exit{Status: exitStatus(err)}
}

// notRun is the end of a command whose program did not start.
func notRun(name string, err error) exit {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return exit{statusNotFound, fmt.Sprintf("there is no program %s in the guest: %v", name, err)}
	}
	return exit{statusNotRun, fmt.Sprintf("cannot run %s in the guest: %v", name, err)}
}

// program is a running program.
type program struct {
	cmd                   *exec.Cmd
	group                 group
	stdin, stdout, stderr *os.File
}

// startProgram starts a program with pipes.
func startProgram(cmd *exec.Cmd, groups string) (*program, error) {
	p := &program{cmd: cmd}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	pipe := func(intoProgram bool) (ours, their *os.File, err error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		ours, their = r, w
		if intoProgram {
			ours, their = w, r
		}
		theirs = append(theirs, their)
		return ours, their, nil
	}
	var in, out, errs *os.File
	var err error
	if p.stdin, in, err = pipe(true); err == nil {
		if p.stdout, out, err = pipe(false); err == nil {
			p.stderr, errs, err = pipe(false)
		}
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
		p.group, err = startGroup(cmd, groups)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close closes our ends of the pipes.
func (p *program) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// forward passes output on until all who may write it have ended, or the client
// has gone.
func (p *program) forward(from *os.File, to io.Writer) {
	defer from.Close()
	buf := make([]byte, piece)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// feed writes input to the program. If the program does not want it, the rest is
// dropped.
func (p *program) feed(input <-chan []byte, taken frameWriter) {
	defer p.stdin.Close()
	for b := range input {
		if len(b) == 0 {
			return
		}
		if _, err := p.stdin.Write(b); err != nil {
			return
		}
		taken.lock.Lock()
		err := writeFrame(taken.to, taken.kind, nil)
		taken.lock.Unlock()
		if err != nil {
			return
		}
	}
}

// obey does what the client says. If it says something wrong or nothing more,
// the program is killed; after the program's end that does nothing.
func (p *program) obey(conn net.Conn, input chan<- []byte) {
	defer close(input)
	defer p.group.kill()
	for {
		kind, rest, err := readFrame(conn)
		if err != nil {
			// Whoever has left the group may still hold the pipes open.
			p.close()
			return
		}
		switch {
		case kind == frameStdin:
			select {
			case input <- rest:
			default:
				return // it was to wait for frameTaken
			}
		case kind == frameSignal && len(rest) == 1:
			p.group.signal(syscall.Signal(rest[0]))
		default:
			return
		}
	}
}

// wait waits for the end of the program, kills what it has left behind, and
// returns what exec.Cmd.Wait does.
func (p *program) wait() error {
	// The process stays a zombie until the others are killed: its id, which is
	// also that of the process group, cannot be another's before.
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	p.group.kill()
	return p.group.reap(p.cmd)
}
