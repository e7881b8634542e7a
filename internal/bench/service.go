package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/server"
)

// The services and methods that Serve offers.
const (
	ServiceEcho  = "echo"
	ServiceBench = "bench"

	// MethodEcho answers with the request.
	MethodEcho = "echo"
	// MethodPage takes a size, 4 bytes, little endian, and optionally a stamp,
	// 8 bytes, and answers with a page of that size and stamp. The caller must
	// reserve the room: see client.AnswerSize.
	MethodPage = "page"
	// MethodSink answers with how many messages it has had so far, 8 bytes,
	// little endian.
	MethodSink = "sink"
	// MethodOneWay is for one-way messages: it counts them.
	MethodOneWay = "oneway"
	// MethodCount answers with how many one-way messages have arrived, 8 bytes,
	// little endian.
	MethodCount = "count"
)

const (
	countSize = 8
	// pageSizeSize is the size of the size in a request for a page.
	pageSizeSize    = 4
	pageRequestSize = pageSizeSize + content.StampSize
)

// Serve answers the calls of benchmarks until ctx ends, with up to the given
// number of handlers at once, and waits for requests as wait says. It calls ready with the node's name once callers
// can find the methods. It returns nil when ctx ended.
func Serve(ctx context.Context, socket string, workers int, wait server.Mode, ready func(node string)) (err error) {
	s, err := server.Attach(ctx, socket, server.Name("echo"), server.Workers(workers), server.WaitMode(wait))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := Register(ctx, s); err != nil {
		return err
	}
	ready(s.Node())
	return s.Serve(ctx)
}

// Register offers the methods that benchmarks call. If the server is in a core, its agent handles
// them.
func Register(_ context.Context, s *server.Server) error {
	h := new(handlers)
	for _, m := range []struct {
		service, method string
		handler         server.Handler
		answer          server.MethodOption
	}{
		{ServiceEcho, MethodEcho, echo, server.AnswerLikeRequest()},
		{ServiceBench, MethodPage, page, server.AnswerSize(server.DefaultAnswerSize)},
		{ServiceBench, MethodSink, h.sink, server.AnswerSize(countSize)},
		{ServiceBench, MethodOneWay, h.oneWay, server.AnswerSize(0)},
		{ServiceBench, MethodCount, h.count, server.AnswerSize(countSize)},
	} {
		if err := s.Handle(m.service, m.method, m.handler, m.answer, server.Inline()); err != nil {
			return err
		}
	}
	return nil
}

// handlers is the state of the methods that count.
type handlers struct {
	sunk, posted atomic.Uint64
}

// echo answers in place: request and answer are the same bytes.
func echo(c *server.Call) error { return c.Reply(c.Request()) }

// page fills the answer in place.
func page(c *server.Call) error {
	req := c.Request()
	if len(req) != pageSizeSize && len(req) != pageRequestSize {
		return fmt.Errorf("a request of %d bytes: want a size of %d bytes and optionally a stamp of %d", len(req), pageSizeSize, content.StampSize)
	}
	// Request and answer share their bytes: everything is read before.
	size := int(binary.LittleEndian.Uint32(req))
	var stamp uint64
	if len(req) == pageRequestSize {
		stamp = binary.LittleEndian.Uint64(req[pageSizeSize:])
	}
	if p := c.Answer(size); p != nil {
		content.Fill(p, stamp)
	}
	return nil
}

func (h *handlers) sink(c *server.Call) error {
	if !content.SameEnds(c.Request()) {
		return errDamaged
	}
	return reply(c, h.sunk.Add(1))
}

// oneWay does not count a damaged message, so a run that sent it misses it.
func (h *handlers) oneWay(c *server.Call) error {
	if !content.SameEnds(c.Request()) {
		return errDamaged
	}
	h.posted.Add(1)
	return nil
}

var errDamaged = fmt.Errorf("the first and the last %d bytes differ: the message was damaged, or is none of a benchmark's", content.StampSize)

func (h *handlers) count(c *server.Call) error { return reply(c, h.posted.Load()) }

// reply answers with a number. A nil answer is one that the caller has no room
// for, which the library reports.
func reply(c *server.Call, n uint64) error {
	if p := c.Answer(countSize); p != nil {
		binary.LittleEndian.PutUint64(p, n)
	}
	return nil
}
