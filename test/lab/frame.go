package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// The command port speaks frames in both directions: one byte that says what it
// is, four bytes with the length of the rest, big endian, and the rest. There is
// one connection per command:
//
//	host   frameHello    the token
//	guest  frameWelcome  empty; on a wrong token it closes the connection instead
//	host   frameRequest  a request as JSON
//	then, in any order
//	host   frameStdin    a piece of standard input; empty is its end. The next one
//	                     may be sent when the guest has answered with frameTaken
//	host   frameSignal   one byte: a signal for the program
//	guest  frameStdout, frameStderr  a piece of output
//	guest  frameTaken    empty; the program has got the last piece of input
//	and at last
//	guest  frameExit     an exit as JSON
//
// If the connection ends before frameExit, the guest kills the program and all
// that it has started.
const (
	frameHello   = 'h'
	frameWelcome = 'w'
	frameRequest = 'r'
	frameStdin   = 'i'
	frameTaken   = 't'
	frameSignal  = 's'
	frameStdout  = 'o'
	frameStderr  = 'e'
	frameExit    = 'x'
)

const (
	frameHeader = 5
	// maxFrame bounds the rest of a frame. A request with a long command line and
	// environment must fit.
	maxFrame = 1 << 20
	// piece is how much input or output is put into one frame.
	piece = 64 << 10
)

// request is a command for the guest.
type request struct {
	// Args is the program and its arguments. A program without a slash is looked
	// up in the PATH of Env.
	Args []string
	// Dir is the absolute path of the current directory.
	Dir string
	// Env is the whole environment of the program.
	Env []string
}

// exit is how a command ended.
type exit struct {
	// Status is the exit status of the program as a shell gives it.
	Status int
	// Reason says why there was no program to have an exit status, or is empty.
	Reason string
}

// writeFrame writes one frame with a single Write.
func writeFrame(w io.Writer, kind byte, rest []byte) error {
	if len(rest) > maxFrame {
		return fmt.Errorf("frame %q of %d bytes: the limit is %d", kind, len(rest), maxFrame)
	}
	frame := make([]byte, frameHeader, frameHeader+len(rest))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(rest)))
	_, err := w.Write(append(frame, rest...))
	return err
}

// writeJSON writes a frame with the JSON of v.
func writeJSON(w io.Writer, kind byte, v any) error {
	rest, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, kind, rest)
}

// readFrame reads one frame. The error is io.EOF only if there was no byte of
// another frame.
func readFrame(r io.Reader) (kind byte, rest []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("frame %q of %d bytes: the limit is %d", header[0], n, maxFrame)
	}
	rest = make([]byte, n)
	if _, err := io.ReadFull(r, rest); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return header[0], rest, nil
}

// frameWriter makes a Writer of the frames of one kind. Several may share a lock
// and a connection.
type frameWriter struct {
	lock *sync.Mutex
	to   io.Writer
	kind byte
}

func (w frameWriter) Write(b []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	done := 0
	for len(b) > 0 {
		n := min(len(b), piece)
		if err := writeFrame(w.to, w.kind, b[:n]); err != nil {
			return done, err
		}
		done += n
		b = b[n:]
	}
	return done, nil
}
