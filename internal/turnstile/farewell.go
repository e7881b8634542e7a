package turnstile

import (
	"io"
	"net"
	"time"
)

const (
	// farewellTime and farewellBytes bound what is read of a connection that is refused.
	farewellTime  = time.Second
	farewellBytes = 64 << 10
)

// Farewell lets the other end of a TCP connection read why it is refused: closing with bytes unread would reset the
// connection, and what was said last would be lost there. The caller closes it afterwards.
func Farewell(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if ok && t.CloseWrite() == nil && t.SetReadDeadline(time.Now().Add(farewellTime)) == nil {
		_, _ = io.CopyN(io.Discard, t, farewellBytes)
	}
}
