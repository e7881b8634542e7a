package system

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// A raw socket system: a request is its size (4 bytes, little endian), its operation and the
// payload, an answer its size and the payload. Each client process has one connection.

const (
	requestHeader = 5
	answerHeader  = 4
	// socketBuffer is how much is read, and if writes are coalesced written, at once.
	socketBuffer = 64 << 10
	// inlineLimit is how many bytes of requests a client may have under way without
	// a goroutine of its own for writing. A client that writes and does not read waits for a
	// service that does the same if more is under way than the sockets' buffers hold.
	inlineLimit = 96 << 10
)

func socketSystem(name, network string, coalesce bool) *System {
	dial := func(ctx context.Context, address string, n Need) (Session, error) {
		return dialSocket(ctx, network, address, coalesce, n)
	}
	return oneService(name, network, dial, func(ctx context.Context, address string) error { return serveSocket(ctx, network, address, coalesce) })
}

// socket is the client's end. It is a Pipe and a Poster.
type socket struct {
	conn net.Conn
	op   Op
	in   *bufio.Reader
	// out coalesces; nil if each message is written by itself.
	out *bufio.Writer
	// frame is room for a message, and answer for its answer.
	frame, answer []byte
	pump          *pump
}

func dialSocket(ctx context.Context, network, address string, coalesce bool, n Need) (*socket, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s := &socket{
		conn: conn, op: n.Op, in: bufio.NewReaderSize(conn, socketBuffer),
		frame: make([]byte, requestHeader+n.Request), answer: make([]byte, n.Answer),
	}
	if coalesce {
		s.out = bufio.NewWriterSize(conn, socketBuffer)
	}
	if n.Op != Post && n.Depth*(requestHeader+n.Request) > inlineLimit {
		s.pump = startPump(s.conn, s.out, n.Depth)
	}
	return s, nil
}

// Send implements Pipe.
func (s *socket) Send(req []byte) error {
	frame := s.frame
	if s.pump != nil {
		frame = <-s.pump.idle
	}
	if cap(frame) < requestHeader+len(req) {
		frame = make([]byte, requestHeader+len(req))
	}
	frame = frame[:requestHeader+len(req)]
	binary.LittleEndian.PutUint32(frame, uint32(len(req)))
	frame[4] = byte(s.op)
	copy(frame[requestHeader:], req)
	switch {
	case s.pump != nil:
		s.pump.queue <- frame
		return nil
	case s.out != nil:
		_, err := s.out.Write(frame)
		return err
	}
	_, err := s.conn.Write(frame)
	return err
}

// Receive implements Pipe.
func (s *socket) Receive() (answer []byte, waited bool, err error) {
	if waited = s.in.Buffered() == 0; waited && s.pump == nil {
		if err := s.Flush(); err != nil {
			return nil, true, err
		}
	}
	var header [answerHeader]byte
	if _, err := io.ReadFull(s.in, header[:]); err != nil {
		return nil, waited, err
	}
	n := int(binary.LittleEndian.Uint32(header[:]))
	if n > maxPage {
		return nil, waited, fmt.Errorf("an answer of %d bytes", n)
	}
	if n > len(s.answer) {
		s.answer = make([]byte, n)
	}
	_, err = io.ReadFull(s.in, s.answer[:n])
	return s.answer[:n], waited, err
}

// Post implements Poster.
func (s *socket) Post(msg []byte) error { return s.Send(msg) }

// Flush implements Poster.
func (s *socket) Flush() error {
	if s.out == nil {
		return nil
	}
	return s.out.Flush()
}

// Close implements Session.
func (s *socket) Close() error {
	err := s.conn.Close()
	if s.pump != nil {
		s.pump.stop()
	}
	return err
}

// pump writes messages in a goroutine of its own. There are as many frames as requests may
// be outstanding, so sending never waits.
type pump struct {
	queue, idle chan []byte
	done        chan struct{}
}

func startPump(conn net.Conn, out *bufio.Writer, depth int) *pump {
	p := &pump{queue: make(chan []byte, depth), idle: make(chan []byte, depth), done: make(chan struct{})}
	for range depth {
		p.idle <- nil
	}
	go func() {
		defer close(p.done)
		for frame := range p.queue {
			var err error
			if out == nil {
				_, err = conn.Write(frame)
			} else if _, err = out.Write(frame); err == nil && len(p.queue) == 0 {
				err = out.Flush()
			}
			if err != nil {
				// Whoever receives will be told.
				_ = conn.Close()
			}
			p.idle <- frame
		}
	}()
	return p
}

// stop ends the goroutine. The connection is closed, so it does not wait.
func (p *pump) stop() {
	close(p.queue)
	<-p.done
}
