package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// The data path with TLS. It differs from the plain one where bytes meet the socket
// and nowhere else: frames, queues and completions are the same.

// flushSecured is flush with TLS. Frames are encrypted a few records at a time, and
// count as sent as soon as the kernel has the last byte of the record that theirs is in: the
// peer may have read them then, and answered, though the rest of the records waits.
func (e *Endpoint) flushSecured() {
	s := e.sec
	for from := e.stats.BytesOut; e.sendable(from); {
		if !s.underWay && len(s.out) == 0 && (!e.gather() || !e.seal()) {
			break
		}
		if len(s.out) > 0 && !e.push() {
			break
		}
		if s.underWay && len(s.out) == 0 {
			s.underWay = false
			e.sent(0) // a refusal without bytes
		}
	}
}

// seal encrypts what gather has listed, as much as there is room for. It reports
// false when that ended the connection.
func (e *Endpoint) seal() bool {
	s, t, q := e.sec, &e.tx, e.cq
	if q.plain == nil {
		q.plain = make([]byte, 0, recordSize)
	}
	s.underWay = true
	covered, plain, err := 0, q.plain, error(nil)
	for _, f := range t.frames {
		off := 0
		if f == t.partial {
			off = t.off
		}
		for _, part := range [2][]byte{f.head[min(off, f.used):f.used], f.payload[max(off-f.used, 0):]} {
			for len(part) > 0 && err == nil && covered < sealedRecords*recordSize {
				n := copy(plain[len(plain):recordSize], part)
				plain, part = plain[:len(plain)+n], part[n:]
				covered += n
				if len(plain) == recordSize {
					err = s.seal(plain)
					plain = plain[:0]
				}
			}
		}
	}
	e.letGo()
	if err == nil && len(plain) > 0 {
		err = s.seal(plain)
	}
	if err != nil {
		e.fail(fabric.StatusFatal, VendorTLS)
	}
	return err == nil
}

// seal encrypts one record.
func (s *secured) seal(plain []byte) error {
	_, err := s.tls.Write(plain)
	s.marks = append(s.marks, mark{len(s.out), len(plain)})
	return err
}

// push writes what is encrypted and reports whether the socket took all of it.
func (e *Endpoint) push() bool {
	s := e.sec
	n, err := shm.WriteFD(e.fd, s.out[s.off:])
	e.stats.Writes++
	s.off += max(n, 0)
	for len(s.marks) > 0 && s.marks[0].end <= s.off {
		m := s.marks[0]
		s.marks = s.marks[:copy(s.marks, s.marks[1:])]
		e.sent(m.bytes)
	}
	switch {
	case err == nil && s.off == len(s.out):
		s.out, s.off = s.out[:0], 0
		return true
	case err == nil, errors.Is(err, unix.EAGAIN):
		e.jam()
	case errors.Is(err, unix.EINTR):
		return true
	default:
		e.sever(err)
	}
	return false
}

// begun returns how many work requests from sq.next on the peer may have seen a part
// of.
func (e *Endpoint) begun() uint32 {
	if e.sec != nil && e.sec.underWay {
		n := uint32(0)
		for _, f := range e.tx.frames[e.tx.done:] {
			if !f.answer {
				n++
			}
		}
		return n
	}
	if e.tx.partial != nil && !e.tx.partial.answer {
		return 1
	}
	return 0
}

// readSecured is read with TLS: one read of the socket, and everything that it makes
// complete as far as there is room.
func (e *Endpoint) readSecured() bool {
	rx, s := &e.rx, e.sec
	rx.w = copy(rx.buf, rx.buf[rx.r:rx.w])
	rx.r = 0
	guarded := rx.region != nil && len(rx.dst) > 0
	if guarded && !rx.region.acquire() {
		e.vanished()
		return false
	}
	s.calls, s.got = 1, 0
	total, err := 0, error(nil)
	for err == nil && len(rx.dst)+len(rx.buf)-rx.w > 0 {
		to, n := rx.buf[rx.w:], 0
		if len(rx.dst) > 0 {
			to = rx.dst
		}
		n, err = s.tls.Read(to)
		if len(rx.dst) > 0 {
			rx.dst = rx.dst[n:]
		} else {
			rx.w += n
		}
		total += n
		if err == nil && n < len(to) && s.dry() {
			// To ask crypto/tls would say the same, and cost an allocation.
			err = unix.EAGAIN
		}
	}
	if guarded {
		rx.region.release()
	}
	e.stats.Reads += uint64(1 - s.calls)
	e.stats.BytesIn += uint64(total)
	e.cq.moved += total
	if total > 0 {
		e.cq.latest = e
	}
	switch {
	case err == nil:
		e.readable = true // for want of room: there may be more
	case errors.Is(err, unix.EAGAIN) && total+s.got > 0:
		e.readable = s.more || e.severed
	case total > 0:
		e.readable = true // it comes again
	default:
		e.readSecuredError(err)
	}
	return total > 0
}

// readSecuredError is readError with TLS.
func (e *Endpoint) readSecuredError(err error) {
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		e.readError(errno)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		// Frames have lengths, so that a lost end is not taken for an end.
		e.endOfStream()
	default:
		e.fail(fabric.StatusFatal, VendorTLS)
	}
}

// Describe says in one line what protects the connection; "" if nothing does. It may
// be called from any goroutine.
func (e *Endpoint) Describe() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sec == nil {
		return ""
	}
	s := e.sec.tls.ConnectionState()
	return fmt.Sprintf("%s, %s, with node %s", tls.VersionName(s.Version), tls.CipherSuiteName(s.CipherSuite), e.peer)
}
