package client

import (
	"fmt"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// read copies the answer, unless it is to be read in place. The header was checked by the daemon; it is checked
// again because other processes of the domain can write to the slots.
func (f *Future) read() ([]byte, error) {
	var h slots.Header
	r := f.lane.ring
	if !h.Decode(r.Header(f.run)) {
		return nil, f.corrupt(slots.ErrProtocol)
	}
	if err := h.CheckAnswer(r.Geometry(), f.run.Len, f.run.Ticket); err != nil {
		return nil, f.corrupt(err)
	}
	if slots.IsMark(h.Trace) {
		f.m.conn.session.Rings.SetTaken(h.Trace, shm.Nanotime())
	}
	return f.judge(&h, r.Payload(f.run)[:h.Length])
}

// judge makes an outcome of an answer whose header was checked.
func (f *Future) judge(h *slots.Header, p []byte) ([]byte, error) {
	if more := h.Flags&slots.FlagPart != 0 && h.Status == slots.StatusOK; more != f.part && h.Status == slots.StatusOK {
		if more {
			return nil, f.more(p)
		}
		return nil, f.corrupt(slots.ErrProtocol)
	}
	switch h.Status {
	case slots.StatusOK:
		if f.receipt {
			if len(p) > 0 || h.Flags&slots.FlagControl == 0 {
				return nil, f.corrupt(fmt.Errorf("%w: a receipt with flags %#x and %d bytes", slots.ErrProtocol, h.Flags, len(p)))
			}
			return nil, nil
		}
		if f.inPlace {
			return p[:len(p):len(p)], nil
		}
		if f.dst == nil {
			return append(make([]byte, 0, len(p)), p...), nil
		}
		return append(f.dst[:0], p...), nil
	case slots.StatusTooLarge:
		if f.m.opts.answer < 0 {
			f.m.lookAgain(f.route) // the method may have been declared anew
		}
		if !f.m.opts.direct { // else it would have been fetched
			return nil, &TooLargeError{Target: f.m.name, What: "answer", Limit: MaxMessage, remedy: noLarger}
		}
		return nil, &TooLargeError{Target: f.m.name, What: "answer", Limit: int(h.Answer), remedy: "ask for more with client.AnswerSize, or declare it with server.AnswerSize"}
	}
	if h.Status == slots.StatusNotExported {
		f.m.conn.session.Forgotten(f.lane.peer) // whatever region it was: those that are known there are made known again
	}
	if h.Status == slots.StatusInvalid && f.carries {
		// Perhaps there is a process now that does not know what goes with it: the daemon
		// will say.
		return nil, f.m.statusError(slots.StatusNoService, string(p))
	}
	return nil, f.m.statusError(h.Status, string(p))
}

// statusError makes an error of an outcome other than an answer.
func (m *Method) statusError(status slots.Status, text string) error {
	switch status {
	case slots.StatusRemote:
		return &RemoteError{Target: m.name, Text: text}
	case slots.StatusDeadline:
		return &DeadlineError{Target: m.name, Cause: errPeerDeadline}
	case slots.StatusNoService:
		m.route.p.Store(nil) // the next call looks again
		return fmt.Errorf("%s: %w: %w: %s", m.name, ErrNotExecuted, ErrNoService, text)
	case slots.StatusNotExported:
		return fmt.Errorf("%s: %w: %w: %s", m.name, ErrNotExecuted, ErrNotExported, text)
	case slots.StatusNotExecuted, slots.StatusInvalid:
		return fmt.Errorf("%s: %w: %s", m.name, ErrNotExecuted, text)
	}
	return fmt.Errorf("%s: %w: %s", m.name, ErrMaybeExecuted, text)
}

func (f *Future) corrupt(err error) error {
	return fmt.Errorf("%s: %w: the answer was damaged in shared memory: %w", f.m.name, ErrMaybeExecuted, err)
}
