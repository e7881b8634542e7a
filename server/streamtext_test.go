package server

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// The text of a stream's error is as long as there is room for in a whole answer, whatever was sent before it.
func TestStreamTextBehindBytes(t *testing.T) {
	const room = 300 - exchange.PartSize // that the rig's requests have
	for _, text := range []string{"why it has failed", strings.Repeat("long", 100)} {
		want := text[:min(len(text), room-exchange.OutcomeSize)]
		for n := room - len(want) - 20; n < room+20; n++ {
			r := newExchangeRig(t)
			msg := bytes.Repeat([]byte("m"), max(n, 0))
			r.s.handlers.Store(&map[uint32]handlers{fuzzMethod: {stream: func(s *Stream) error {
				if err := s.Send(msg); err != nil {
					return err
				}
				return errors.New(text)
			}}})
			r.send(0, false, exchange.PartRequest{Op: exchange.OpOpenStream, Credit: 1000}, nil)
			r.s.exchanges.running.Wait() // the handler has returned
			got, ended := 0, false
			for slot := 1; slot < 10 && !ended; slot++ {
				r.send(slot, false, exchange.PartRequest{Op: exchange.OpWait, ID: r.ids[0], Credit: 1000}, nil)
				var h slots.Header
				h.Decode(r.ring.HeaderAt(slot))
				var a exchange.PartAnswer
				data, rest, err := a.Decode(r.ring.PayloadAt(slot, 1)[:h.Length])
				if err != nil {
					t.Fatal(err)
				}
				got += len(data)
				if ended = a.Flags&exchange.FlagEnd != 0; !ended {
					continue
				}
				if _, have, err := exchange.ReadOutcome(rest); err != nil || have != want {
					t.Errorf("behind %d bytes: %q, %v, want %q", len(msg), have, err, want)
				}
			}
			if !ended || got != exchange.FrameSize+len(msg) {
				t.Errorf("%d of %d bytes, ended %v", got, exchange.FrameSize+len(msg), ended)
			}
			r.s.stop()
			r.s.exchanges.shut()
		}
	}
}
