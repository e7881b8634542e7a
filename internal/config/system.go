package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// system is what a configuration takes from the machine it is read on.
type system struct {
	// hostname is the default name of the node; it need not be a valid one.
	hostname string
	// uid is the user that runs the daemon.
	uid uint32
	// user and group look up a name.
	user, group func(name string) (uint32, error)
}

// thisSystem describes the machine and the process.
func thisSystem() system {
	// Without a host name the node gets the default of defaultNodeName.
	host, _ := os.Hostname()
	served := newDirectories()
	return system{
		hostname: host,
		uid:      uint32(os.Geteuid()),
		user: func(name string) (uint32, error) {
			return served.lookUp(func(name string) (string, error) {
				u, err := user.Lookup(name)
				if err != nil {
					return "", err
				}
				return u.Uid, nil
			}, "passwd", name)
		},
		group: func(name string) (uint32, error) {
			return served.lookUp(func(name string) (string, error) {
				g, err := user.LookupGroup(name)
				if err != nil {
					return "", err
				}
				return g.Gid, nil
			}, "group", name)
		},
	}
}

// defaultNodeName makes a valid node name of a host name: the part before the
// first dot, with what a node name cannot have replaced.
func defaultNodeName(host string) string {
	short, _, _ := strings.Cut(strings.ToLower(host), ".")
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (isBare(byte(r))) {
			return r
		}
		return '-'
	}, short)
	name = strings.TrimLeft(name[:min(len(name), 63)], "-_")
	if name == "" {
		return "node"
	}
	return name
}

// numericID parses a user or group id. The largest 32-bit value is not an id: it
// means "unchanged" to the kernel.
func numericID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == math.MaxUint32 {
		return 0, fmt.Errorf("%q is not an id from 0 to %d", s, uint32(math.MaxUint32-1))
	}
	return uint32(n), nil
}

// resolve turns names or numeric ids into sorted ids without duplicates. What
// does not resolve is reported to fail and left out.
func resolve(names []string, what string, lookup func(string) (uint32, error), fail func(format string, args ...any)) []uint32 {
	var ids []uint32
	for _, name := range names {
		id, err := resolveOne(name, lookup)
		var noUser user.UnknownUserError
		var noGroup user.UnknownGroupError
		switch {
		case errors.As(err, &noUser), errors.As(err, &noGroup):
			fail("this machine has no %s %q", what, name)
		case err != nil:
			fail("%s %q: %v", what, name, err)
		default:
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func resolveOne(name string, lookup func(string) (uint32, error)) (uint32, error) {
	if name == "" {
		return 0, errors.New("the name is empty")
	}
	if c := name[0]; '0' <= c && c <= '9' || c == '-' || c == '+' {
		return numericID(name)
	}
	// The system's lookup takes a C string and reads lines with ':' between
	// fields, so neither may be part of a name.
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }) {
		return 0, errors.New("the name has a space, a colon or a control character")
	}
	return lookup(name)
}
