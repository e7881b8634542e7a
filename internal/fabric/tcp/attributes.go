package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// socketAttributes are the options that the kernel is asked for, by the names of tcp(7) and
// socket(7).
var socketAttributes = []struct {
	name         string
	level, value int
}{
	{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY},
	{"TCP_MAXSEG", unix.IPPROTO_TCP, unix.TCP_MAXSEG},
	{"SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF},
	{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF},
	{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE},
	{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
	{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
	{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
}

// Attributes implements fabric.Attributer with what the endpoint was made with and, of a
// connected one, what the kernel says of its socket.
func (e *Endpoint) Attributes() ([]fabric.Attribute, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == phaseClosed || e.phase == phaseActive && e.fd < 0 {
		return nil, fabric.ErrClosed
	}
	var all []fabric.Attribute
	stage := "create"
	add := func(name, format string, v ...any) {
		all = append(all, fabric.Attribute{Stage: stage, Name: name, Value: fmt.Sprintf(format, v...)})
	}
	add("listen", "%s", e.addr.dial())
	add("send_depth", "%d", e.sq.depth)
	add("recv_depth", "%d", e.rq.depth)
	add("max_inline", "%d", maxInline)
	add("reads_under_way", "%d", maxReads)
	add("receive_buffer", "%d", len(e.rx.buf))
	if e.phase < phaseConnected {
		return all, nil
	}
	stage = "socket"
	var errs []error
	for _, end := range []struct {
		name string
		of   func(int) (unix.Sockaddr, error)
	}{{"local", unix.Getsockname}, {"peer", unix.Getpeername}} {
		a, err := end.of(e.fd)
		if err != nil {
			errs = append(errs, fmt.Errorf("tcp: %s address: %w", end.name, err))
			continue
		}
		add(end.name, "%s", socketAddress(a))
	}
	for _, o := range socketAttributes {
		v, err := unix.GetsockoptInt(e.fd, o.level, o.value)
		if err != nil {
			errs = append(errs, fmt.Errorf("tcp: %s: %w", o.name, err))
			continue
		}
		add(o.name, "%d", v)
	}
	if name, err := congestionOf(e.fd); err != nil {
		errs = append(errs, err)
	} else {
		add("TCP_CONGESTION", "%s", name)
	}
	if e.sec != nil {
		stage = "TLS"
		s := e.sec.tls.ConnectionState()
		add("version", "%s", tls.VersionName(s.Version))
		add("cipher_suite", "%s", tls.CipherSuiteName(s.CipherSuite))
		if e.peer != "" {
			add("peer", "%s", e.peer)
		}
	}
	return all, errors.Join(errs...)
}

// socketAddress prints an address of the kernel.
func socketAddress(a unix.Sockaddr) string {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)).String()
	default:
		return fmt.Sprintf("%T", a)
	}
}

var _ fabric.Attributer = (*Endpoint)(nil)
