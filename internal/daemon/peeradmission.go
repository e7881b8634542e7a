package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/turnstile"
)

// dataSecurity returns what data connections are to be protected by; nil: nothing.
func (c *conductor) dataSecurity() tcp.Security {
	if !c.guard.Required() || c.cfg.TLS.Data != config.TLSDataTLS {
		return nil
	}
	return c.guard.Data(func(from net.Addr, err error) { c.note(from, "data connection refused", err) })
}

// warnOfPlainData says that TLS does not reach the data, unless the operator has said
// so.
func (c *conductor) warnOfPlainData() {
	if c.guard.Required() && slices.ContainsFunc(c.fabrics, func(f *fabrics.Fabric) bool { return f.Name == tcp.Name }) && c.cfg.TLS.Data == "" {
		event.TLSDataPlain.On(&c.log).Msg(`tls.mode = "required" protects bootstrap connections only: requests, answers and regions go over TCP unencrypted. ` +
			`Set tls.data = "tls" to encrypt them too. Or use a network you trust or IPsec, and set tls.data = "plain" to say that you know; see docs/security.md`)
	}
}

// admitPeer decides whether the node that a hello claims may connect.
func (c *conductor) admitPeer(node string, ch *peerauth.Channel) error {
	if err := ch.Claims(node); err != nil {
		return err
	}
	if node == c.node {
		return fmt.Errorf("the node at this address is called %q, too, or is the node that connects: correct node.name, or the address of the [[peer]]", node)
	}
	if c.allLinks()[node] == nil {
		return fmt.Errorf("node %q is not a [[peer]] of node %s", printable.Text(node), c.node)
	}
	return c.guard.Allowed(node, c.live().TLS.Allow)
}

// refuse counts and logs why a connection is not taken, and ends it.
func (c *conductor) refuse(conn net.Conn, err error) {
	c.note(conn.RemoteAddr(), "bootstrap connection refused", err)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		turnstile.Farewell(conn)
	}
	_ = conn.Close()
}

// note counts why something that came from an address is not taken, and logs what it
// was if that is news.
func (c *conductor) note(from net.Addr, what string, err error) {
	atomic.AddUint64(&c.counts().RefusedConnections, 1)
	reason, text, news := c.refusals.Note(turnstile.HostOf(from), err)
	if news && c.ctx.Err() == nil {
		event.PeerRefused.On(&c.log).Str("error", text).Str("reason", reason).Stringer("from", from).
			Msg(what + "; more for the same reason are only counted, see rdmad status")
	}
}
