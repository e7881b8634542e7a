package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/nodecert"
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
	// MaxGroupDelay is by how much groups may be held back. Empty: the default.
	MaxGroupDelay string
	// Lanes is how many lanes of each class lead to a peer. Zero: the default.
	Lanes int
	// Balance is how requests are spread over them. Empty: the default.
	Balance string
	// Idle is what an agent does when there is nothing to do. Empty: the
	// default.
	Idle string
	// LinkHold is for how long a lost link is waited for. Empty: the default.
	LinkHold string
	// HangLimit is for how long a core may make no progress. Empty: the default.
	HangLimit string
	// SocketMode is the permissions of the worker sockets. Empty: the default.
	SocketMode string
	// TLS makes certificates for the nodes and has them connect with TLS.
	TLS bool
	// TLSData has them encrypt data connections too. It needs TLS.
	TLSData bool
	// Extra is appended to the configuration: sections that are not written
	// otherwise, such as [[class]], [[domain]] and [limits].
	Extra string
}

// Check returns what is wrong with settings before anything is started by them; nil if nothing is.
func (s Settings) Check() config.Errors {
	const there = "/"
	_, err := config.Parse("", []byte(configText("a", socketPath(there, "a"), "127.0.0.1:1", []Peer{{"b", "127.0.0.1:2"}}, s)))
	var errs config.Errors
	errors.As(err, &errs)
	return errs
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
	if s.LinkHold != "" {
		fmt.Fprintf(&b, "link_hold = %q\n", s.LinkHold)
	}
	if s.HangLimit != "" {
		fmt.Fprintf(&b, "hang_limit = %q\n", s.HangLimit)
	}
	provider := s.Fabric
	if provider == "" {
		provider = "tcp"
	}
	fmt.Fprintf(&b, "\n[fabric]\nprovider = %q\nlisten = \"127.0.0.1:0\"\n", provider)
	if len(s.Verbs) > 0 {
		section := "verbs"
		if provider == "libfabric" {
			section = provider
		}
		fmt.Fprintf(&b, "\n[%s]\n", section)
		for _, key := range slices.Sorted(maps.Keys(s.Verbs)) {
			value := s.Verbs[key]
			if _, err := strconv.ParseInt(value, 10, 64); err != nil {
				value = strconv.Quote(value)
			}
			fmt.Fprintf(&b, "%s = %s\n", key, value)
		}
	}
	if s.TLS {
		f := nodecert.FilesOf(filepath.Dir(socket), name)
		data := "plain"
		if s.TLSData {
			data = "tls"
		}
		fmt.Fprintf(&b, "\n[tls]\nmode = \"required\"\ncert = %q\nkey = %q\nca = %q\ndata = %q\n", f.Cert, f.Key, f.CA, data)
	}
	if s.Idle != "" {
		fmt.Fprintf(&b, "\n[agent]\nidle = %q\n", s.Idle)
	}
	if s.GroupMax > 0 || s.MaxGroupDelay != "" {
		b.WriteString("\n[group_send]\n")
		if s.GroupMax > 0 {
			fmt.Fprintf(&b, "max_messages = %d\n", s.GroupMax)
		}
		if s.MaxGroupDelay != "" {
			fmt.Fprintf(&b, "max_group_delay = %q\n", s.MaxGroupDelay)
		}
	}
	if s.Lanes > 0 || s.Balance != "" {
		b.WriteString("\n[lanes]\n")
		if s.Lanes > 0 {
			fmt.Fprintf(&b, "per_peer = %d\n", s.Lanes)
		}
		if s.Balance != "" {
			fmt.Fprintf(&b, "balance = %q\n", s.Balance)
		}
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
