package daemon

import (
	"bytes"
	"errors"
	"time"

	"github.com/rdmad/rdmad/internal/peerproto"
)

var (
	// maxUnread bounds the bytes of answers that wait for a peer to read them: it asks about as many regions at a time as
	// thousands of processes give back that end together. Less in tests.
	maxUnread = 8 << 20
	// writePart is how much is written within peerWriteTimeout, which is less in tests, too.
	writePart        = 1 << 20
	peerWriteTimeout = 5 * time.Second
)

// backlogTimeouts times peerWriteTimeout is how long a message may take, with those before it.
const backlogTimeouts = 2

// answer answers a question of the peer, soon. Whoever reads what the peer says does not wait for the peer to read: of two
// nodes with much to ask each other neither would. Only one that leaves very much unread is not listened to until it
// has read some.
func (s *session) answer(m *peerproto.Message) error {
	var frame bytes.Buffer
	if err := peerproto.Write(&frame, m); err != nil {
		return err
	}
	s.mu.Lock()
	if s.unread > 0 && s.unread+frame.Len() > maxUnread {
		s.mu.Unlock()
		return s.write(frame.Bytes())
	}
	s.answers = append(s.answers, frame.Bytes()...)
	begun := s.unread > 0
	s.unread += frame.Len()
	s.mu.Unlock()
	if !begun && !s.link.conductor.spawn(s.writeAnswers) {
		return errStopping
	}
	return nil
}

// writeAnswers writes the answers that there are, and those that come meanwhile.
func (s *session) writeAnswers() {
	for written := 0; ; {
		s.mu.Lock()
		s.unread -= written
		b := s.answers
		s.answers = nil
		s.mu.Unlock()
		if len(b) == 0 {
			return
		}
		_ = s.write(b) // or the session has ended
		written = len(b)
	}
}

var errBacklog = errors.New("the peer does not read what it is told fast enough")

// write writes whole frames. If they cannot be written the session ends: a part of them may
// have been, and with TLS nothing can follow. So it does when that takes too long together with those before: a peer that
// reads a little now and then must not keep what waits for a message to be sent, such as ids of callers that are gone.
func (s *session) write(b []byte) (err error) {
	until := time.Now().Add(backlogTimeouts * peerWriteTimeout)
	s.writing.Lock()
	defer s.writing.Unlock()
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), writePart)]
		now := time.Now()
		if now.After(until) {
			err = errBacklog
		} else if err = s.conn.SetWriteDeadline(now.Add(peerWriteTimeout)); err == nil {
			_, err = s.conn.Write(part)
		}
		b = b[len(part):]
	}
	if err == nil {
		// TLS writes by itself, whenever the peer asks for new keys, and that fails after a deadline that is over.
		err = s.conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		s.end(err)
	}
	return err
}
