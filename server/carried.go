package server

import (
	"context"
	"slices"

	"github.com/rdmad/rdmad/slots"
)

const badCarried = "what goes with the request was damaged, or is of another version"

// takeCarried appends what goes with a request to dst, and makes its header that of one
// without. p is the payload's memory.
func takeCarried(p []byte, h *slots.Header, dst []byte) (carried []byte, ok bool) {
	refs := int(h.Refs) * slots.RefSize
	n, carried, ok := slots.SplitCarried(p[refs:h.Length], dst)
	if ok {
		h.Length = uint32(refs + n)
	}
	return carried, ok
}

// Carried returns what the caller has sent beside the request (client.Carry), nil for
// nothing. The caller may have written anything. It is valid until the handler returns, and
// nil when that has returned.
func (c *Call) Carried() []byte {
	if c.open.Load() == 0 || len(c.carried) == 0 {
		return nil
	}
	return slices.Clip(c.carried) // the room behind it is for the next request
}

// SetContext makes ctx what Context returns until the handler returns, for what wraps
// handlers: ctx is to be made from what Context returned before. When the handler has returned
// it does nothing.
func (c *Call) SetContext(ctx context.Context) {
	if c.open.Load() != 0 {
		c.ctx = ctx
	}
}

// Carried returns what the caller has sent beside the messages of the stream
// (client.Carry), nil for nothing. The caller may have written anything.
func (s *Stream) Carried() []byte {
	if len(s.carried) == 0 {
		return nil
	}
	return s.carried
}

// SetContext makes ctx what Context returns, for what wraps handlers: ctx is to be made from
// what Context returned before. It is the handler's to call, before other goroutines use the
// stream.
func (s *Stream) SetContext(ctx context.Context) { s.shown = ctx }
