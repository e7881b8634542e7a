package test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// frameCounter stands between two nodes, on the bootstrap connection of one that dials,
// and counts what they say to each other.
type frameCounter struct {
	listener net.Listener
	target   string
	all      sync.WaitGroup
	// open is how many directions are carried now. lanes are the messages about the
	// opening of lanes.
	open  atomic.Int64
	lanes atomic.Int64

	mu    sync.Mutex
	ended bool
	conns []net.Conn
}

// newFrameCounter makes one for connections to target. It ends with the test.
func newFrameCounter(t *testing.T, target string) *frameCounter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frameCounter{listener: l, target: target}
	f.all.Go(f.serve)
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		f.ended = true
		for _, conn := range f.conns {
			_ = conn.Close()
		}
		f.mu.Unlock()
		f.all.Wait()
	})
	return f
}

func (f *frameCounter) address() string { return f.listener.Addr().String() }

func (f *frameCounter) serve() {
	for {
		from, err := f.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", f.target)
		if err != nil {
			_ = from.Close() // the node is not there
			continue
		}
		f.mu.Lock()
		if f.conns = append(f.conns, from, to); f.ended {
			_, _ = from.Close(), to.Close()
		}
		f.mu.Unlock()
		f.open.Add(2)
		f.all.Go(func() { f.carry(from, to) })
		f.all.Go(func() { f.carry(to, from) })
	}
}

// carry copies one direction, frame by frame, until either half ends.
func (f *frameCounter) carry(from, to net.Conn) {
	defer f.open.Add(-1)
	defer from.Close()
	defer to.Close()
	for {
		frame := make([]byte, 4)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
		if _, err := io.ReadFull(from, frame[4:]); err != nil {
			return
		}
		if bytes.Contains(frame, []byte(`"lane":{`)) {
			f.lanes.Add(1)
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}
