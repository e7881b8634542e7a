package system

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/server"
)

// handlers is the state of rdmad's service.
type handlers struct {
	server *server.Server
	posted atomic.Uint64
	// idle are regions with pages that no handler uses.
	idle chan *regionSheet
}

// regionSheet is a sheet in a region.
type regionSheet struct {
	region *server.Region
	size   int
}

// countSize is the size of a count.
const countSize = 8

// serveRdmad is the service on the node that listens on the socket.
func serveRdmad(ctx context.Context, socket string) (err error) {
	s, err := server.Attach(ctx, socket, server.Name("peers-service"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := RegisterRdmad(ctx, s); err != nil {
		return err
	}
	return s.Serve(ctx)
}

// RegisterRdmad offers the methods of the service. In a core its agent handles what is quick.
func RegisterRdmad(_ context.Context, s *server.Server) error {
	h := &handlers{server: s, idle: make(chan *regionSheet, maxSheets)}
	for _, m := range []struct {
		name    string
		handler server.Handler
		answer  server.MethodOption
	}{
		{Echo.String(), h.echo, server.AnswerLikeRequest()},
		{Page.String(), h.page, server.AnswerSize(server.DefaultAnswerSize)},
		{rdmadFetch, h.fetch, server.AnswerSize(0)},
		{Post.String(), h.post, server.AnswerSize(0)},
		{Count.String(), h.count, server.AnswerSize(countSize)},
	} {
		if err := s.Handle(rdmadService, m.name, m.handler, m.answer, server.Inline()); err != nil {
			return err
		}
	}
	return nil
}

// echo answers in place: request and answer are the same bytes.
func (h *handlers) echo(c *server.Call) error { return c.Reply(c.Request()) }

// page fills the answer in place.
func (h *handlers) page(c *server.Call) error {
	size, stamp, err := parsePage(c.Request())
	if err != nil {
		return err
	}
	if p := c.Answer(size); p != nil {
		content.Fill(p, stamp)
	}
	return nil
}

// maxSheets is how many regions are kept: more than there are handlers.
const maxSheets = 8

// fetch writes the page into the caller's region.
func (h *handlers) fetch(c *server.Call) error {
	size, stamp, err := parsePage(c.Request())
	if err != nil {
		return err
	}
	if c.NumRegions() != 1 {
		return fmt.Errorf("a page goes into one region, not %d", c.NumRegions())
	}
	s, err := h.sheet(c.Context(), size)
	if err != nil {
		return err
	}
	content.Restamp(s.region.Bytes()[:size], stamp)
	from, err := s.region.Ref(0, size)
	if err == nil {
		err = c.Region(0).WriteFrom(from, 0)
	}
	select {
	case h.idle <- s:
	default:
		err = errors.Join(err, s.region.Free())
	}
	return err
}

// sheet returns a region with a page of that size that nobody else uses.
func (h *handlers) sheet(ctx context.Context, size int) (*regionSheet, error) {
	s := new(regionSheet)
	select {
	case s = <-h.idle:
	default:
	}
	if s.region != nil && s.region.Len() < size {
		if err := s.region.Free(); err != nil {
			return nil, err
		}
		s.region = nil
	}
	if s.region == nil {
		r, err := h.server.AllocRegion(ctx, size)
		if err != nil {
			return nil, err
		}
		*s = regionSheet{region: r}
	}
	if s.size != size {
		content.Fill(s.region.Bytes()[:size], 0)
		s.size = size
	}
	return s, nil
}

// post does not count a damaged message, so a run that sent it misses it.
func (h *handlers) post(c *server.Call) error {
	if !content.SameEnds(c.Request()) {
		return errDamaged
	}
	h.posted.Add(1)
	return nil
}

func (h *handlers) count(c *server.Call) error {
	if p := c.Answer(countSize); p != nil {
		binary.LittleEndian.PutUint64(p, h.posted.Load())
	}
	return nil
}
