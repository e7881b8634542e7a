package server

import (
	"context"
	"testing"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// A stream that its caller gives up is forgotten as soon as its handler has returned, in
// whichever order that happens.
func TestStreamIsForgotten(t *testing.T) {
	for name, last := range map[string]func(x *exchanges, s *Stream){
		"given up, then over": func(x *exchanges, s *Stream) {
			x.close(s.e)
			s.finish(slots.StatusOK, "")
		},
		"over, then given up": func(x *exchanges, s *Stream) {
			s.finish(slots.StatusOK, "")
			x.close(s.e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := &exchanges{server: &Server{base: context.Background()}, maxStreams: 1, lease: exchangeLease, open: make(map[uint64]*serverExchange)}
			s := &Stream{
				x: x, in: exchange.NewInbox(exchange.Window, exchange.MaxMessage), out: exchange.NewOutbox(exchange.Window, exchange.Window),
				readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
			}
			s.context(0)
			s.e = &serverExchange{stream: s}
			if ok, why := x.add(s.e); !ok {
				t.Fatal(why)
			}
			last(x, s)
			if len(x.open) != 0 || x.streams != 0 {
				t.Errorf("%d exchanges and %d streams are left", len(x.open), x.streams)
			}
		})
	}
}
