// Package system is the systems that are compared: how the processes of each are
// started, and how a client of each sends requests. All offer the same service: it
// echoes, gives pages, and counts messages that want no answer.
package system

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/bench/content"
)

// Op is what a request asks the service for.
type Op uint8

// The operations.
const (
	// Echo is answered with the request.
	Echo Op = iota
	// Page is answered with a page. Its request is a PageRequest.
	Page
	// Post is not answered.
	Post
	// Count is answered with how many posts have arrived, 8 bytes, little endian.
	Count
)

// String returns the name of the operation in methods and subjects.
func (o Op) String() string { return [...]string{"echo", "page", "post", "count"}[o] }

// Need is what a client is going to do with a session.
type Need struct {
	// Op is the operation of its requests.
	Op Op
	// Depth is the most requests that it has outstanding.
	Depth int
	// Request and Answer are the sizes of messages, in bytes.
	Request, Answer int
}

// Session is what a client process has of a system. It is a Pipe, a Caller or both,
// and may be a Poster. What it implements depends on the Need.
type Session interface {
	// Close ends the session.
	Close() error
}

// Pipe is a session for one goroutine that keeps many requests under way.
type Pipe interface {
	Session
	// Send sends a request, which may be changed when it returns.
	Send(req []byte) error
	// Receive waits for the answer to the oldest request that has none. It is valid
	// until the next call of Receive or Send. waited is false if it was there already.
	Receive() (answer []byte, waited bool, err error)
}

// Caller is a session for as many goroutines as there are requests under way.
type Caller interface {
	Session
	// Call sends a request and waits for the answer, for which room has enough
	// capacity. It may be called by many goroutines.
	Call(req, room []byte) (answer []byte, err error)
}

// Poster is a session that sends one way, for one goroutine.
type Poster interface {
	Session
	// Post sends a message. It may stay in a buffer until Flush.
	Post(msg []byte) error
	// Flush sends what is in buffers.
	Flush() error
}

// System is one of the systems.
type System struct {
	// Name is what tables call it.
	Name string
	// Start starts its processes. A cluster that it returns must be stopped, with an error, too.
	Start func(ctx context.Context, h Host) (*Cluster, error)
	// Dial makes a session with a cluster.
	Dial func(ctx context.Context, address string, n Need) (Session, error)
	// Serve are the bodies of its processes that are processes of this program, by the
	// names of their roles. They return when ctx ends.
	Serve map[string]func(ctx context.Context, address string) error
}

// Find returns the system of that name.
func Find(name string) (*System, error) {
	for _, s := range All {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no system %q", name)
}

// Serve is the body of a process of a system. It returns when ctx ends.
func Serve(ctx context.Context, name, role, address string) error {
	s, err := Find(name)
	if err != nil {
		return err
	}
	serve := s.Serve[role]
	if serve == nil {
		return fmt.Errorf("system %s has no role %q", name, role)
	}
	return serve(ctx, address)
}

// All are the systems, in the order of tables.
var All = []*System{
	socketSystem("tcp", "tcp", false),
	socketSystem("tcp-coalesced", "tcp", true),
	socketSystem("unix", "unix", false),
	grpcSystem("grpc", "tcp"),
	grpcSystem("grpc-unix", "unix"),
	natsSystem(),
	rdmadSystem("rdmad", pair{}),
	rdmadSystem("rdmad-region", pair{regions: true}),
	rdmadSystem("rdmad-single", pair{groupMax: 1}),
	rdmadSystem("rdmad-embedded", pair{embedded: true}),
	rdmadLocalSystem(),
}

// pageRequestSize is the size of a PageRequest: the page's size and its stamp.
const pageRequestSize = 4 + content.StampSize

// PageRequest returns a request for a page of the given size, with the stamp 0.
func PageRequest(size int) []byte {
	req := make([]byte, pageRequestSize)
	binary.LittleEndian.PutUint32(req, uint32(size))
	return req
}

// StampPage changes the stamp in a PageRequest.
func StampPage(req []byte, stamp uint64) { binary.LittleEndian.PutUint64(req[4:], stamp) }

// maxPage is the largest page that the service gives.
const maxPage = 256 << 20

// parsePage reads a PageRequest.
func parsePage(req []byte) (size int, stamp uint64, err error) {
	if len(req) != pageRequestSize {
		return 0, 0, fmt.Errorf("a request for a page has %d bytes, want %d", len(req), pageRequestSize)
	}
	n := binary.LittleEndian.Uint32(req)
	if n > maxPage {
		return 0, 0, fmt.Errorf("a page of %d bytes, want at most %d", n, maxPage)
	}
	return int(n), binary.LittleEndian.Uint64(req[4:]), nil
}

// sheet is a page that is sent again and again, with another stamp each time. Systems
// that send from memory of the service use one for each of its goroutines.
type sheet struct{ buf []byte }

// page returns the page, with room for a header before it, that belongs to the sheet until
// the next call.
func (s *sheet) page(header, size int, stamp uint64) []byte {
	if len(s.buf) != header+size {
		s.buf = make([]byte, header+size)
		content.Fill(s.buf[header:], 0)
	}
	content.Restamp(s.buf[header:], stamp)
	return s.buf
}

// errDamaged is a post whose ends do not match.
var errDamaged = errors.New("a one-way message is damaged")
