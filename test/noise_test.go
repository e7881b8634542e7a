package test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Bytes that mean nothing, on every socket that a node has, end nothing but the
// connection they came by.
func TestNoise(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "stream", 0) // the last that it registers
	before := map[string]sandbox.PIDs{}
	tr := startTraffic(t, c.attach("a"), "b/jobs/transform")
	for _, name := range c.names {
		pids, err := c.nodes[name].PIDs(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		before[name] = pids
		addresses := []net.Addr{&net.UnixAddr{Name: c.socket(name), Net: "unixpacket"}}
		ports := listening(t, pids.Core)
		if len(ports) < 2 {
			t.Fatalf("node %s listens on %v, want the bootstrap's port and the fabric's", name, ports)
		}
		for _, port := range ports {
			addresses = append(addresses, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		}
		for _, address := range addresses {
			for i := range 50 {
				if err := shout(address, i); err != nil {
					t.Errorf("%v: %v", address, err)
				}
			}
		}
		tr.flows(t)
	}
	tr.undisturbed(t)
	for _, name := range c.names {
		if pids, err := c.nodes[name].PIDs(bounded(t)); err != nil || pids != before[name] {
			t.Errorf("node %s had processes %v, now %v (%v)", name, before[name], pids, err)
		}
	}
}

// beginnings are what a conversation may really begin with.
var beginnings = [][]byte{
	nil,
	[]byte(`{"type":"hello","hello":{"protocol":1,"abi":65536,"role":"client","name":"x"}}`),
	[]byte(`{"type":"hello"`),
	[]byte(`{"type":"status","seq":1}`),
	[]byte("RDMADTCP\x01\x00"),
	{0xff, 0xff, 0xff, 0xff},
	{0, 0, 0, 0},
	[]byte("GET / HTTP/1.1\r\n\r\n"),
}

// shout connects, writes what makes little sense, and leaves.
func shout(address net.Addr, i int) error {
	conn, err := net.DialTimeout(address.Network(), address.String(), limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	from := rand.New(rand.NewPCG(uint64(i), 7))
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	noise := make([]byte, 1<<from.IntN(14))
	for j := range noise {
		noise[j] = byte(from.Uint32())
	}
	for _, part := range [][]byte{beginnings[i%len(beginnings)], noise} {
		if len(part) == 0 {
			continue
		}
		// The other side may hang up at any time.
		if _, err := conn.Write(part); err != nil {
			return ignoreHangUp(err)
		}
	}
	return nil
}

// ignoreHangUp returns the error unless it says that the other side closed.
func ignoreHangUp(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("the daemon does not read: %w", err)
	}
	return nil
}

// listening returns the TCP ports on which a process listens.
func listening(t *testing.T, pid int) []int {
	t.Helper()
	links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]bool{}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	var ports []int
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			// sl local remote st ... inode; 0A is LISTEN.
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !inodes[f[9]] {
				continue
			}
			_, port, _ := strings.Cut(f[1], ":")
			raw, err := hex.DecodeString(port)
			if err != nil || len(raw) != 2 {
				t.Fatalf("port in %q", line)
			}
			ports = append(ports, int(binary.BigEndian.Uint16(raw)))
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
