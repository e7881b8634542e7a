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
	stop, err := startServe(ctx, socketB, *file, *workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := awaitService(ctx, socketA); err != nil {
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

// startServe starts a process that serves the file. stop ends it.
func startServe(ctx context.Context, socket, file string, workers int) (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "serve", "--socket", socket, "--root-file", file, "--workers", strconv.Itoa(workers))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	}, nil
}

// awaitService waits until node a has heard of the service on node b.
func awaitService(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	conn, err := client.Attach(ctx, socket, client.Name("pagefetch"))
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		_, err := conn.Method(ctx, "b/"+service+"/"+sumMethod)
		if !errors.Is(err, client.ErrNoService) {
			return err
		}
		select {
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
