package system

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/bench/content"
)

// serveSocket is the service of the raw sockets: one goroutine for each connection.
func serveSocket(ctx context.Context, network, address string, coalesce bool) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	posted := new(atomic.Uint64)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		s := &socketService{in: bufio.NewReaderSize(conn, socketBuffer), conn: conn, posted: posted}
		if coalesce {
			s.out = bufio.NewWriterSize(conn, socketBuffer)
		}
		go s.run()
	}
}

// socketService is the service's end of one connection.
type socketService struct {
	conn   net.Conn
	in     *bufio.Reader
	out    *bufio.Writer // nil if each answer is written by itself
	buf    []byte
	sheet  sheet
	posted *atomic.Uint64
}

// run answers until the connection ends. A client that sends nonsense loses it.
func (s *socketService) run() {
	defer s.conn.Close()
	for {
		answer, err := s.next()
		if err != nil {
			return
		}
		if err := s.write(answer); err != nil {
			return
		}
	}
}

func (s *socketService) write(answer []byte) error {
	if s.out == nil {
		if answer == nil {
			return nil
		}
		_, err := s.conn.Write(answer)
		return err
	}
	if _, err := s.out.Write(answer); err != nil {
		return err
	}
	if s.in.Buffered() > 0 {
		return nil
	}
	return s.out.Flush()
}

// next reads a request and returns the answer with its header, nil if there is none.
func (s *socketService) next() ([]byte, error) {
	var header [requestHeader]byte
	if _, err := io.ReadFull(s.in, header[:]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(header[:]))
	if n > maxPage {
		return nil, fmt.Errorf("a request of %d bytes", n)
	}
	// An echo is sent from where it was read to.
	if len(s.buf) < answerHeader+n {
		s.buf = make([]byte, answerHeader+n)
	}
	req := s.buf[answerHeader : answerHeader+n]
	if _, err := io.ReadFull(s.in, req); err != nil {
		return nil, err
	}
	answer := s.buf[:answerHeader+n]
	switch Op(header[4]) {
	case Echo:
	case Page:
		size, stamp, err := parsePage(req)
		if err != nil {
			return nil, err
		}
		answer = s.sheet.page(answerHeader, size, stamp)
	case Post:
		if !content.SameEnds(req) {
			return nil, errDamaged
		}
		s.posted.Add(1)
		return nil, nil
	case Count:
		answer = binary.LittleEndian.AppendUint64(s.buf[:answerHeader], s.posted.Load())
	default:
		return nil, errors.New("an operation that does not exist")
	}
	binary.LittleEndian.PutUint32(answer, uint32(len(answer)-answerHeader))
	return answer, nil
}
