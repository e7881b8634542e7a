package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/scaling"
)

// mapping is a line of /proc/PID/maps for a memfd of rdmad.
var mapping = regexp.MustCompile(`^([0-9a-f]+)-([0-9a-f]+) .* /memfd:(rdmad-[a-z0-9_-]+)`)

// mappings returns the sizes of a process's mappings of segments, by their names.
func mappings(t *testing.T, pid int) map[string][]int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]int{}
	for line := range strings.Lines(string(text)) {
		m := mapping.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		from, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		to, err := strconv.ParseUint(m[2], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		found[m[3]] = append(found[m[3]], int(to-from))
	}
	return found
}

// What explain-memory says is what a daemon maps: every ring, vault, worker and domain.
func TestExplainMemory(t *testing.T) {
	c := newPair(t, sandbox.Settings{Lanes: 2, Extra: "[[class]]\nname=\"tiny\"\nslot_size=128\nslots=100\nmax_run=4\n[[class]]\nname=\"big\"\nslot_size=4096\nslots=64\nmax_run=16\n"})
	startService(t, c, "b", "jobs")
	conn := c.attach("a")
	c.awaitService("a", "b", "jobs", "who", 1)
	if _, err := conn.Call(bounded(t), "b/jobs/who", nil); err != nil {
		t.Fatal(err)
	}
	r := run(t, rdmad(t, "config", "explain-memory", "--json", "--workers", "1", "-c", filepath.Join(c.dir, "a.toml")))
	r.check(t, "explain-memory", 0)
	var m scaling.Memory
	if err := json.Unmarshal([]byte(r.out), &m); err != nil {
		t.Fatal(err)
	}
	real := mappings(t, c.status("a").PIDs.Core)
	same := func(name string, times, bytes int) {
		t.Helper()
		sizes := real[name]
		if len(sizes) < times {
			t.Errorf("%d mappings of %s, want at least %d: %v", len(sizes), name, times, real)
		}
		for _, n := range sizes {
			if n != scaling.Mapped(bytes) {
				t.Errorf("%s is mapped with %d bytes, explained are %d", name, n, bytes)
			}
		}
	}
	ring, vault := 0, 0
	for _, class := range m.Rings {
		same("rdmad-lane-"+class.Class, 2, class.Ring)
		same("rdmad-vault-"+class.Class, 2, class.Vault)
		ring, vault = ring+2*class.Ring, vault+2*class.Vault
		if class.Locked != class.Slots*class.SlotSize {
			t.Errorf("class %s locks %d bytes", class.Class, class.Locked)
		}
	}
	if m.Way.Ring != ring || m.Way.Vault != vault || m.Peer.Total != 2*m.Way.Total || m.Locked != 2*m.Way.Locked {
		t.Errorf("sums: %+v", m)
	}
	same("rdmad-domain-default", 1, m.Domain)
	same("rdmad-worker", 1, m.Worker-scaling.WorkerPrivate)
	run(t, rdmad(t, "config", "explain-memory", "-c", filepath.Join(c.dir, "a.toml"))).check(t, "explain-memory", 0, "class tiny", "a peer, both ways", "RLIMIT_MEMLOCK")
}
