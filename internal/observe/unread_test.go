package observe

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// A connection whose client asks and does not read the answers ends, whatever it asks, so that
// it keeps nobody out.
func TestUnreadAnswersEndTheConnection(t *testing.T) {
	for _, path := range []string{"/nothing", "/metrics", "/healthz", "/"} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			s := New(Options{Source: newFake(t)})
			s.without.WriteTimeout = 100 * time.Millisecond // else it takes that long
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(l, false) }()
			c := dial(t, l.Addr())
			if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
				t.Fatal(err)
			}
			ask := []byte(strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 64))
			for err == nil {
				_, err = c.Write(ask)
			}
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				t.Errorf("the server still waits for its client to read: %v", err)
			}
			if err := errors.Join(s.Close(), <-served); err != nil {
				t.Error(err)
			}
		})
	}
}
