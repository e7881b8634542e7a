package perfrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/rdmad/rdmad/internal/perf"
)

const (
	// inherited is the descriptor of a child's listener.
	inherited = 3
	// childTime is what a child is given to end by itself.
	childTime = 10 * time.Second
)

// self measures against a server that it starts: a process of its own, so that processor time
// is told apart and a provider has two processes to connect.
func (o *Options) self(ctx context.Context, src perf.Source, tool perf.Tool) (result any, err error) {
	// Before anything is started; the device is opened again when all processes are there.
	n, err := open(src, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tool.Check(n.Caps()), n.Close()); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("perf: %w", err)
	}
	address := ln.Addr().String()
	end, err := o.startChild(ctx, ln)
	if err = errors.Join(err, ln.Close()); err != nil {
		return nil, err
	}
	result, err = o.client(ctx, src, address, tool)
	return result, errors.Join(err, end(err == nil))
}

// startChild starts the server with the listener. What it returns waits for its end; wait says that
// it is about to end by itself.
func (o *Options) startChild(ctx context.Context, ln net.Listener) (end func(wait bool) error, err error) {
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		return nil, fmt.Errorf("perf: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	cmd := exec.CommandContext(ctx, o.Program, append(append([]string{}, o.Arguments...), append(o.Fabric.Flags(), "--child")...)...)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = o.Remarks
	cmd.WaitDelay = childTime
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("perf: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("perf: the server cannot be started: %w", err)
	}
	return func(wait bool) error {
		timer := time.AfterFunc(childTime, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		if !wait {
			_ = stdin.Close()
			_ = cmd.Wait() // the client's error is what counts
			return nil
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("perf: the server: %w", err)
		}
		return nil
	}, nil
}
