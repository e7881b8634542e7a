package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/client"
)

// demoSize is the size of the file that the demo makes when it is given none.
// It is no multiple of a page, on purpose.
const demoSize = 64<<20 + 1234

func demoCommand(ctx context.Context, args []string) (err error) {
	flags := newFlags("demo")
	file := flags.String("file", "", "the file to copy (default: one with random content)")
	workers := flags.Int("workers", 4, "number of processes that fetch")
	depth := flags.Int("depth", 16, "pages that each process asks for in advance")
	_ = flags.Parse(args) // exits on errors
	socketA, socketB := os.Getenv("RDMAD_SOCKET"), os.Getenv("RDMAD_SOCKET_B")
	if socketA == "" || socketB == "" {
		return errors.New("needs the sockets of two nodes in RDMAD_SOCKET and RDMAD_SOCKET_B; run it as: rdmad sandbox -- pageserver demo")
	}
	dir, err := os.MkdirTemp("", "pageserver-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if *file == "" {
		*file = filepath.Join(dir, "original")
		if err := makeRandom(*file, demoSize); err != nil {
			return err
		}
	}
	served, err := startServe(socketB, *file, *workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, served.stop()) }()
	if err := awaitService(ctx, socketA, served); err != nil {
		return err
	}
	f := fetch{socket: socketA, node: "b", workers: *workers, depth: *depth, out: filepath.Join(dir, "copy")}
	r, err := f.run(ctx)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	return nil
}

// serving is a process that serves a file.
type serving struct {
	cmd *exec.Cmd
	// done is closed when the process has ended and err says how.
	done chan struct{}
	err  error
}

// startServe starts a process that serves the file.
func startServe(socket, file string, workers int) (*serving, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &serving{done: make(chan struct{})}
	s.cmd = exec.Command(self, "serve", "--socket", socket, "--root-file", file, "--workers", strconv.Itoa(workers))
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.done)
		s.err = s.cmd.Wait()
	}()
	return s, nil
}

// stop ends the process if it runs and returns how it ended.
func (s *serving) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.done
	if s.err != nil {
		return fmt.Errorf("the serving process: %w", s.err)
	}
	return nil
}

// awaitService waits until node a has heard of the service on node b.
func awaitService(ctx context.Context, socket string, served *serving) error {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	conn, err := client.Attach(ctx, socket, client.Name("pagefetch"))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		// The method that the service offers last.
		_, err := conn.Method(ctx, "b/"+service+"/"+sumMethod)
		if !errors.Is(err, client.ErrNoService) {
			return err
		}
		select {
		case <-served.done:
			return errors.New("nothing is served")
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// makeRandom writes a file with content that does not repeat.
func makeRandom(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	source := rand.NewChaCha8([32]byte{})
	_, err = io.CopyN(f, source, size)
	return errors.Join(err, f.Close())
}
