package peerauth

import (
	"errors"
	"io"
	"net"
	"testing"
)

// Before the handshake is over a peer cannot send without end.
func TestIntake(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_, _ = client.Write(make([]byte, 2*maxIntake))
		_ = client.Close()
	}()
	in := newIntake(server)
	n, err := io.Copy(io.Discard, in)
	if n != maxIntake || !errors.Is(err, errIntake) {
		t.Errorf("%d bytes, %v", n, err)
	}
	in.open = true
	if n, err := io.Copy(io.Discard, in); n != maxIntake || err != nil {
		t.Errorf("afterwards %d bytes, %v", n, err)
	}
}
