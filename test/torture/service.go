package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rdmad/rdmad/server"
)

// service is one process that answers calls.
type service struct {
	args  *roleArgs
	board *board
	books *library
}

// serviceRole answers calls until SIGTERM, and attaches again when the daemon is gone.
func serviceRole(ctx context.Context, args *roleArgs) error {
	b, err := openBoard(args.Dir)
	if err != nil {
		return err
	}
	s := &service{args: args, board: b, books: newLibrary(args.Dir)}
	for n := 0; ctx.Err() == nil; n++ {
		srv, err := server.Attach(ctx, args.Socket, server.Name(fmt.Sprintf("service-%d", args.Instance)), server.Workers(args.Depth))
		if err != nil {
			time.Sleep(again)
			n--
			continue
		}
		if n > 0 {
			b.add(boardReattached)
		}
		err = errors.Join(srv.Handle("load", "work", s.work), srv.Handle("load", "tick", tick), srv.HandleStream("load", "stream", s.stream))
		if err == nil {
			err = srv.Serve(ctx)
		}
		if err = errors.Join(err, srv.Close()); err != nil && !errors.Is(err, server.ErrClosed) {
			return err
		}
	}
	return nil
}

// ran checks a request, and enters that its handler runs.
func (s *service) ran(request []byte) (h head, err error) {
	h, err = decode(request)
	if err != nil {
		s.board.add(boardBadRequests)
		fmt.Fprintf(os.Stderr, "service %d: a request of %d bytes: %v\n", s.args.Instance, len(request), err)
		return h, err
	}
	b, err := s.books.get(h.book)
	if err != nil {
		s.board.add(boardForeign)
		return h, err
	}
	for range s.runs() {
		b.ran(h.entry, s.args.Instance)
	}
	if h.micros > 0 {
		time.Sleep(time.Duration(h.micros) * time.Microsecond)
	}
	if h.flags&headFail != 0 {
		return h, errFailed
	}
	return h, nil
}

// work answers a request.
func (s *service) work(c *server.Call) error {
	h, err := s.ran(c.Request())
	if err != nil {
		return err
	}
	if h.flags&headRegion != 0 {
		page := make([]byte, regionSize)
		fill(page, h.seed(false))
		if _, err := c.Region(0).WriteAt(page, 0); err != nil {
			return err
		}
	}
	if answer := c.Answer(h.answer); answer != nil {
		fill(answer[:h.answer], h.seed(true))
		if h.answer > 0 && s.now() {
			answer[h.answer/2] ^= 1
		}
	}
	return nil
}

// tick answers idle workers.
func tick(*server.Call) error { return nil }

// one in so many requests is what a service gets wrong that is to get things wrong.
const seldom = 300

// now reports whether the service is to get something wrong now.
func (s *service) now() bool { return s.args.Sabotage && rand.IntN(seldom) == 0 }

// runs is how often a handler says that it runs.
func (s *service) runs() int {
	switch {
	case s.now():
		return 0
	case s.now():
		return 2
	}
	return 1
}

// stream answers each message of a stream.
func (s *service) stream(st *server.Stream) error {
	for {
		msg, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		h, err := s.ran(msg)
		if err != nil {
			return err
		}
		answer := make([]byte, h.answer)
		fill(answer, h.seed(true))
		if err := st.Send(answer); err != nil {
			return err
		}
	}
}
