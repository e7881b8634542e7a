package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/rdmad/rdmad/server"
)

func serveCommand(ctx context.Context, args []string) error {
	flags := newFlags("serve")
	socket := flags.String("socket", "", "the daemon's socket (default $RDMAD_SOCKET)")
	file := flags.String("root-file", "", "the file to serve")
	workers := flags.Int("workers", 4, "how many requests to handle at once")
	_ = flags.Parse(args) // exits on errors
	if *file == "" {
		return errors.New("which file? give --root-file FILE")
	}
	return serve(ctx, *socket, *file, *workers)
}

// serve serves the file until ctx ends.
func serve(ctx context.Context, socket, name string, workers int) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name)
	}
	srv, err := server.Attach(ctx, socket, server.Name("pageserver"), server.Workers(workers))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	h := handlers{f}
	if err := srv.Handle(service, statMethod, h.stat, server.AnswerSize(stateSize)); err != nil {
		return err
	}
	if err := srv.Handle(service, readMethod, h.read, server.AnswerSize(pageSize)); err != nil {
		return err
	}
	if err := srv.Handle(service, sumMethod, h.sum, server.AnswerSize(sha256.Size)); err != nil {
		return err
	}
	return srv.Serve(ctx)
}

// handlers answer requests about one file.
type handlers struct{ file *os.File }

func (h handlers) state() (fileState, error) {
	info, err := h.file.Stat()
	if err != nil {
		return fileState{}, err
	}
	return fileState{uint64(info.Size()), info.ModTime().UnixNano()}, nil
}

// stat answers with the file's state.
func (h handlers) stat(c *server.Call) error {
	s, err := h.state()
	if err != nil {
		return err
	}
	var b [stateSize]byte
	s.encode(b[:])
	return c.Reply(b[:])
}

// read answers with a page. The file is read right into the slots from which the
// daemon sends: nothing is copied in between.
func (h handlers) read(c *server.Call) error {
	req := c.Request()
	if len(req) != indexSize {
		return fmt.Errorf("a request of %d bytes, want the page's index of %d", len(req), indexSize)
	}
	// The answer takes the place of the request, so the index is read first.
	index := binary.LittleEndian.Uint64(req)
	if index > math.MaxInt64/pageSize {
		return fmt.Errorf("there is no page %d", index)
	}
	page := c.Answer(pageSize)
	if page == nil {
		return nil // the caller gets ErrTooLarge
	}
	n, err := h.file.ReadAt(page, int64(index)*pageSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n == 0 {
		return fmt.Errorf("page %d is beyond the end of %s", index, h.file.Name())
	}
	c.Answer(n)
	return nil
}

// sum answers with the file's SHA-256. It takes long for a large file and stops
// when the caller has stopped waiting.
func (h handlers) sum(c *server.Call) error {
	s, err := sumOf(c.Context(), h.file)
	if err != nil {
		return err
	}
	return c.Reply(s[:])
}

// sumOf returns the SHA-256 of the file's content from its beginning.
func sumOf(ctx context.Context, f *os.File) (sum [sha256.Size]byte, err error) {
	const block = 1 << 20
	h := sha256.New()
	for at := int64(0); ; at += block {
		if ctx.Err() != nil {
			return sum, context.Cause(ctx)
		}
		n, err := io.Copy(h, io.NewSectionReader(f, at, block))
		if err != nil {
			return sum, err
		}
		if n < block {
			return [sha256.Size]byte(h.Sum(nil)), nil
		}
	}
}
