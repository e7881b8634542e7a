package sandbox

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Settings are what nodes may have other than the default.
type Settings struct {
	// Fabric is the provider. Empty: "tcp".
	Fabric string
	// Verbs are keys of the section [verbs] with their values. A value that is
	// a whole number is written as one, any other as a string.
	Verbs map[string]string
	// GroupMax is the most messages of one group. Zero: the default.
	GroupMax int
	// Idle is what an agent does when there is nothing to do. Empty: the
	// default.
	Idle string
	// SocketMode is the permissions of the worker sockets. Empty: the default.
	SocketMode string
	// Extra is appended to the configuration: sections that are not written
	// otherwise, such as [[class]], [[domain]] and [limits].
	Extra string
}

// Peer is how a node reaches another.
type Peer struct{ Name, Address string }

// drainTimeout bounds a node's orderly stop; Node.Stop waits a little longer.
const drainTimeout = "3s"

// configText returns the configuration of a node as TOML.
func configText(name, socket, listen string, peers []Peer, s Settings) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[node]\nname = %q\nsocket = %q\nlisten = %q\ndrain_timeout = %q\n", name, socket, listen, drainTimeout)
	if s.SocketMode != "" {
		fmt.Fprintf(&b, "socket_mode = %q\n", s.SocketMode)
	}
	provider := s.Fabric
	if provider == "" {
		provider = "tcp"
	}
	fmt.Fprintf(&b, "\n[fabric]\nprovider = %q\nlisten = \"127.0.0.1:0\"\n", provider)
	if len(s.Verbs) > 0 {
		b.WriteString("\n[verbs]\n")
		for _, key := range slices.Sorted(maps.Keys(s.Verbs)) {
			value := s.Verbs[key]
			if _, err := strconv.ParseInt(value, 10, 64); err != nil {
				value = strconv.Quote(value)
			}
			fmt.Fprintf(&b, "%s = %s\n", key, value)
		}
	}
	if s.Idle != "" {
		fmt.Fprintf(&b, "\n[agent]\nidle = %q\n", s.Idle)
	}
	if s.GroupMax > 0 {
		fmt.Fprintf(&b, "\n[group_send]\nmax_messages = %d\n", s.GroupMax)
	}
	for _, p := range peers {
		fmt.Fprintf(&b, "\n[[peer]]\nname = %q\naddress = %q\n", p.Name, p.Address)
	}
	b.WriteString("\n" + s.Extra)
	return b.String()
}

// The ports that FreePorts chooses from are below those that Linux gives to
// outgoing connections. Of those, one could be taken by any connection while the
// daemon restarts, even by one that its own peer makes to that very port.
const (
	lowPort  = 12000
	highPort = 32000
	// portTries is far more than it takes to find a free one.
	portTries = 1000
)

// FreePorts returns n addresses on the loopback interface on which nothing
// listens. Somebody else may choose the same before it is used, which is
// unlikely but not excluded.
func FreePorts(n int) ([]string, error) {
	addresses := make([]string, 0, n)
	var last error
	for range portTries {
		if len(addresses) == n {
			break
		}
		// All stay open until all are chosen, so they differ.
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowPort+rand.IntN(highPort-lowPort)))
		if err != nil {
			last = err
			continue
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	if len(addresses) < n {
		return nil, fmt.Errorf("find a free port: %w", last)
	}
	return addresses, nil
}

// socketPath returns where the node of that name has its socket.
func socketPath(dir, name string) string { return filepath.Join(dir, name+".sock") }
