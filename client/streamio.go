package client

import (
	"io"
	"math/bits"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

const (
	// idleRoom is the room for bytes in a wait when little comes: two slots of the
	// smallest class. A stream on which nothing happens holds no more.
	idleRoom = 2*slots.MinSlotSize - slots.HeaderSize - exchange.PartSize
	// maxRoom is the most room in a wait, and the most bytes in a part.
	maxRoom = 128 << 10
)

// receive is a goroutine that takes what comes until the stream ends: it always has one
// wait with the handler's process, which answers it when there is news.
func (s *Stream) receive() {
	most := min(maxRoom, s.r.largest-exchange.PartSize)
	for room := min(idleRoom, most); ; {
		s.mu.Lock()
		limit, _ := s.in.Credit(s.reading)
		s.in.Tell(limit)
		ended, unsent := s.err != nil, s.unsent
		s.mu.Unlock()
		if ended {
			return
		}
		wait := &part{head: exchange.PartRequest{ID: s.id, Op: exchange.OpWait, Credit: limit}, to: s.to, room: room}
		got, err := 0, error(nil)
		err = s.m.part(s.ctx, s.r, wait, func(a *exchange.PartAnswer, data, rest []byte) error {
			got = len(data)
			return s.news(a, data, rest)
		})
		if err == nil {
			err = unsent // the handler goes on, and what was to be sent to it does not
		}
		if err != nil {
			s.broken(err) // nothing, if it has ended otherwise
			return
		}
		room = nextRoom(room, got, most)
	}
}

// nextRoom chooses the room of the next wait by what came with the last one.
func nextRoom(room, got, most int) int {
	switch {
	case got == room:
		return min(4*room, most)
	case got > idleRoom:
		return min(1<<bits.Len(uint(got)), most)
	}
	return min(idleRoom, most)
}

// news takes the answer to a wait.
func (s *Stream) news(a *exchange.PartAnswer, data, rest []byte) error {
	if a.Kind != exchange.KindData || a.ID != s.id {
		return s.damaged(exchange.ErrProtocol)
	}
	s.mu.Lock()
	err := s.in.Add(a.Offset, data)
	if err == nil {
		err = s.out.Extend(a.Credit)
	}
	var status uint32
	var text string
	over := a.Flags&exchange.FlagEnd != 0
	if err == nil && over {
		if status, text, err = exchange.ReadOutcome(rest); err == nil {
			// A handler that has failed may have left a message half sent.
			if end := s.in.End(); slots.Status(status) == slots.StatusOK {
				err = end
			}
		}
	}
	s.wakeSender()
	s.mu.Unlock()
	if err != nil {
		return s.damaged(err)
	}
	poke(s.readable)
	poke(s.writable)
	switch {
	case !over:
	case slots.Status(status) == slots.StatusOK:
		s.end(io.EOF, false)
	default:
		s.end(s.m.statusError(slots.Status(status), text), false)
	}
	return nil
}

// offer lets the handler's process know of room that a reader has made, if it may be
// waiting for that: what it was told last is spent for the most part. mu is held.
func (s *Stream) offer() {
	limit, gain := s.in.Credit(s.reading)
	if gain >= s.in.Window()/2 || gain > 0 && s.in.Got()+exchange.FrameSize >= limit-gain {
		s.credit = true
		s.wakeSender()
	}
}

// wakeSender starts the goroutine that sends parts, unless it runs or there is nothing
// to say. mu is held.
func (s *Stream) wakeSender() {
	if !s.sending && s.due() {
		s.sending = true
		go s.send()
	}
}

// due reports whether a part is to be sent. mu is held.
func (s *Stream) due() bool {
	return s.err == nil && (s.credit || s.out.Sendable() > 0 || s.out.EndDue() || s.out.Blocked() && !s.asked)
}

// send is a goroutine that sends parts, one after the other, while there is something
// to say. What is sent meanwhile goes with the next part.
func (s *Stream) send() {
	var scratch []byte
	most := min(maxRoom, s.r.largest-exchange.PartSize)
	for {
		s.mu.Lock()
		if !s.due() {
			s.sending = false
			s.mu.Unlock()
			return
		}
		p := &part{head: exchange.PartRequest{ID: s.id, Op: exchange.OpSend}, to: s.to}
		data, off := s.out.Next(most)
		scratch = append(scratch[:0], data...)
		p.data, p.head.Offset = scratch, off
		if s.out.TakeEnd() {
			p.head.Flags |= exchange.FlagEnd
		}
		if s.asked = s.out.Blocked(); s.asked {
			p.head.Flags |= exchange.FlagMore
		}
		p.head.Credit, _ = s.in.Credit(s.reading)
		s.in.Tell(p.head.Credit)
		s.credit = false
		s.mu.Unlock()
		poke(s.writable)
		err := s.m.part(s.ctx, s.r, p, func(a *exchange.PartAnswer, _, _ []byte) error {
			if a.Kind != exchange.KindAck || a.ID != s.id {
				return s.damaged(exchange.ErrProtocol)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := s.out.Extend(a.Credit); err != nil {
				return s.damaged(err)
			}
			return nil
		})
		if err != nil {
			// The handler may have returned without waiting for what was sent. How
			// the stream has ended, or will end, receive knows, by its next wait at
			// the latest; sending stays set.
			s.mu.Lock()
			s.unsent = err
			s.mu.Unlock()
			return
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
