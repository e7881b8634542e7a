package daemon

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A peer that is silently gone is noticed by the kernel; no timer of ours runs while a
// link is idle. Keepalive does it for a connection on which nothing is under way, after
// peerIdle and peerProbes times peerProbe; peerSilence is for one on which something was
// sent and is not acknowledged: the kernel probes nothing then, and would go on for a
// quarter of an hour.
const (
	peerIdle    = 5 * time.Second
	peerProbe   = 2 * time.Second
	peerProbes  = 3
	peerSilence = peerIdle + peerProbes*peerProbe
)

// watchPeer has the kernel end a connection whose peer is silently gone.
func watchPeer(t *net.TCPConn) error {
	if err := t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: peerIdle, Interval: peerProbe, Count: peerProbes}); err != nil {
		return err
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerSilence.Milliseconds()))
	})
	if err == nil && failed != nil {
		err = fmt.Errorf("TCP_USER_TIMEOUT: %w", failed)
	}
	return err
}
