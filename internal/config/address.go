package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maxSocketPath is the room for a path in the kernel's sockaddr_un, which holds
// 108 bytes with the terminating zero.
const maxSocketPath = 107

// maxPath is the longest path that the kernel takes.
const maxPath = 4095

var (
	// nodeNameExpr is what a node may be called. Names appear in file names,
	// metrics labels and logs, hence no upper case and no spaces.
	nodeNameExpr = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	// labelExpr is what a class or a domain may be called.
	labelExpr = regexp.MustCompile(`^[a-z0-9_-]{1,31}$`)
	// hostExpr is a host name as resolvers accept them.
	hostExpr = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$`)
)

const (
	nodeNameForm = "1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit"
	labelForm    = "1 to 31 of a-z 0-9 _ -"
)

// optional accepts an empty string besides what the check accepts.
func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// nodeName checks the name of a node.
func nodeName(s string) error {
	if !nodeNameExpr.MatchString(s) {
		return fmt.Errorf("must be %s, got %q", nodeNameForm, s)
	}
	return nil
}

// hostName checks the name of a host as browsers send it, or "*".
func hostName(s string) error {
	if s != "*" && !hostExpr.MatchString(s) {
		return fmt.Errorf(`must be the name of a host, without a port, or "*", got %q`, s)
	}
	return nil
}

// listenAddress checks host:port to listen at. The host may be empty for every
// address and the port 0 for one that the system chooses.
func listenAddress(s string) error {
	return hostPort(s, true)
}

// dialAddress checks host:port to connect to.
func dialAddress(s string) error {
	return hostPort(s, false)
}

func hostPort(s string, listen bool) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		var ae *net.AddrError
		if errors.As(err, &ae) {
			return fmt.Errorf("must be host:port, got %q: %s", s, ae.Err)
		}
		return fmt.Errorf("must be host:port, got %q", s)
	}
	if host != "" || !listen {
		if err := hostOnly(host); err != nil {
			return fmt.Errorf("must be host:port, got %q: %w", s, err)
		}
	}
	low := 1
	if listen {
		low = 0
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < uint64(low) {
		return fmt.Errorf("must be host:port with a port from %d to 65535, got %q", low, s)
	}
	return nil
}

// collide reports whether one process cannot listen at both addresses, which are good or
// empty, as far as that can be seen without looking up names.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil {
		return false // there is nothing to listen at
	}
	nA, _ := strconv.ParseUint(portA, 10, 16)
	nB, _ := strconv.ParseUint(portB, 10, 16)
	if nA != nB || nA == 0 {
		return false
	}
	ipA, _ := netip.ParseAddr(hostA)
	ipB, _ := netip.ParseAddr(hostB)
	if hostA == "" || hostB == "" || ipA.IsUnspecified() || ipB.IsUnspecified() {
		return true
	}
	if ipA.IsValid() && ipB.IsValid() {
		return ipA.Unmap() == ipB.Unmap()
	}
	return strings.EqualFold(hostA, hostB)
}

// hostOnly checks an IP address or a host name without a port.
func hostOnly(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if len(s) > 253 || !hostExpr.MatchString(s) {
		return fmt.Errorf("%q is neither an IP address nor a host name", s)
	}
	return nil
}

// socketPath checks the path of the Unix socket.
func socketPath(s string) error {
	return absolutePath(s, "a socket", maxSocketPath, ", which is what the kernel has room for")
}

// filePath checks the path of a file that is to be read.
func filePath(s string) error { return absolutePath(s, "a file", maxPath, "") }

// credentialPath is filePath for a file whose content may have been put where its path belongs: that would be in logs, in the
// status and in support bundles if the reason had it.
func credentialPath(s string) error {
	if !filepath.IsAbs(s) {
		return errors.New("must be an absolute path; what is there is not shown, as it may be a secret")
	}
	return filePath(s)
}

// autoPath accepts Auto and Off besides what the check accepts.
func autoPath(check func(string) error) func(string) error {
	return func(s string) error {
		if s == Auto || s == Off {
			return nil
		}
		return check(s)
	}
}

// absolutePath checks the path of what, which has a limit for a reason.
func absolutePath(s, what string, most int, reason string) error {
	switch {
	case !filepath.IsAbs(s):
		return fmt.Errorf("must be an absolute path, got %q", s)
	case len(s) > most:
		return fmt.Errorf("must be at most %d bytes long%s; got %d", most, reason, len(s))
	case strings.ContainsRune(s, 0):
		return errors.New("must not contain a zero byte")
	case strings.HasSuffix(s, "/"):
		return fmt.Errorf("must be the path of %s, got the directory %q", what, s)
	}
	return nil
}

// deviceName checks the name of an RDMA device. It becomes part of paths below
// /sys, so nothing in it may lead elsewhere.
func deviceName(s string) error {
	bad := func(r rune) bool { return r <= ' ' || r == '/' || r >= 0x7f }
	if len(s) > 63 || s == "." || s == ".." || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("must be the name of a device such as \"mlx5_0\", of at most 63 bytes without spaces and slashes, got %q", s)
	}
	return nil
}
