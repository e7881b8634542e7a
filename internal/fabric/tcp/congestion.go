package tcp

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// CongestionAuto is the system's congestion control for Config.Congestion, but for one
	// that paces.
	CongestionAuto = "auto"
	// CongestionSystem is the system's, whatever it is.
	CongestionSystem = "system"
	// maxCongestion is the longest name that the kernel takes, TCP_CA_NAME_MAX without its end.
	maxCongestion = 15
)

// ErrCongestion: the kernel does not have the congestion control that is asked for, or has it not for
// this process.
var ErrCongestion = errors.New("tcp: congestion control")

// unpaced are what CongestionAuto prefers to one that paces, the first that there is and
// that the process may use. Everybody may use reno.
var unpaced = []string{"cubic", "reno"}

// paces reports whether a congestion control spreads what it sends by timers. BBR does: it was made for
// links whose bandwidth is to be found out. Between nodes that know each other the timers cost more
// than they save: 1 MiB at a time over the loopback took a third to a half more processor time by them.
func paces(name string) bool { return strings.HasPrefix(name, "bbr") }

// prepare chooses the congestion control of a socket before it connects, or listens: what is accepted has
// that of its listener. Pacing begins with the connection, and does not end with another choice.
func (c *Config) prepare(_, _ string, socket syscall.RawConn) error {
	var err error
	if e := socket.Control(func(fd uintptr) { err = control(int(fd), c.Congestion) }); e != nil {
		return e
	}
	return err
}

// control chooses the congestion control of a socket.
func control(fd int, wanted string) error {
	switch wanted {
	case CongestionSystem:
		return nil
	case "", CongestionAuto:
		name, err := congestionOf(fd)
		if err != nil || !paces(name) {
			return err
		}
		for _, other := range unpaced {
			if unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, other) == nil {
				return nil
			}
		}
		return nil // the system's works, too
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, wanted); err != nil {
		return fmt.Errorf("%w %q: %w", ErrCongestion, wanted, err)
	}
	return nil
}

// congestionOf returns the congestion control of a socket.
func congestionOf(fd int) (string, error) {
	name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCongestion, err)
	}
	return name, nil
}

// checkCongestion reports whether connections can have the congestion control.
func checkCongestion(wanted string) error {
	if len(wanted) > maxCongestion {
		return fmt.Errorf("%w %q: a name has at most %d bytes", ErrCongestion, wanted, maxCongestion)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("tcp: socket: %w", err)
	}
	err = control(fd, wanted)
	switch {
	case errors.Is(err, unix.ENOENT):
		err = fmt.Errorf("%w: this kernel has %s", err, words("tcp_available_congestion_control"))
	case errors.Is(err, unix.EPERM):
		err = fmt.Errorf("%w: without CAP_NET_ADMIN there are %s (sysctl net.ipv4.tcp_allowed_congestion_control)", err, words("tcp_allowed_congestion_control"))
	}
	return errors.Join(err, unix.Close(fd))
}

// words returns what a file of names in the kernel's settings has.
func words(setting string) string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/" + setting)
	if err != nil {
		return "others"
	}
	return strings.Join(strings.Fields(string(text)), ", ")
}
