package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/version"
	"github.com/rdmad/rdmad/shm"
)

func metaOf(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// someFDs returns n descriptors.
func someFDs(t *testing.T, n int) (fds []int) {
	t.Helper()
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds
}

// leftBy is what a core of this program leaves, with one worker at the other end of the
// connection.
func leftBy(t *testing.T, cfg *config.Config) (items []depot.Item, worker *attach.Conn) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if worker, err = connOf(pair[1]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Close() })
	width := bits.Len(uint(cfg.Limits.Services))
	return []depot.Item{
		{Key: handoff.NodeKey, Meta: metaOf(t, handoff.Node{Versions: version.Own(), Boot: strings.TrimSpace(string(boot)), Incarnation: "0123456789abcdef"})},
		{Key: "domain/default", Meta: metaOf(t, domainMeta{MethodBits: width, LastID: 3}), FDs: someFDs(t, 2)},
		{Key: "method/default/0", Meta: metaOf(t, methodMeta{Service: "s", Method: "m", ID: 7 << width})},
		{Key: "worker/default/3", Meta: metaOf(t, workerMeta{Role: attach.RoleClient}), FDs: append(someFDs(t, 1), pair[0])},
		{Key: "region/default/1", Meta: metaOf(t, regionMeta{Generation: 1, Owner: 3, Size: 4096}), FDs: someFDs(t, 1)},
		{Key: "lane/default/1", Meta: metaOf(t, laneMeta{}), FDs: someFDs(t, 2)},
	}, worker
}

// A core goes on with what it understands completely, and with nothing otherwise: then
// the workers are told, and the incarnation is a new one.
func TestTakeOver(t *testing.T) {
	cfg, err := config.Parse("test", []byte("[node]\nname = \"a\"\nsocket = \"/tmp/none.sock\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	change := func(key string, f func(i *depot.Item)) func([]depot.Item) []depot.Item {
		return func(items []depot.Item) []depot.Item {
			for k := range items {
				if items[k].Key == key {
					f(&items[k])
				}
			}
			return items
		}
	}
	node := func(f func(n *handoff.Node)) func([]depot.Item) []depot.Item {
		return change(handoff.NodeKey, func(i *depot.Item) {
			var n handoff.Node
			if err := json.Unmarshal(i.Meta, &n); err != nil {
				t.Fatal(err)
			}
			f(&n)
			i.Meta = metaOf(t, n)
		})
	}
	fewer := func(i *depot.Item) { _ = unix.Close(i.FDs[0]); i.FDs = i.FDs[1:] }
	for name, c := range map[string]struct {
		change func([]depot.Item) []depot.Item
		usable bool
	}{
		"as it was":          {func(i []depot.Item) []depot.Item { return i }, true},
		"another vault":      {node(func(n *handoff.Node) { n.Versions.Vault = "x" }), false},
		"another ABI":        {node(func(n *handoff.Node) { n.Versions.ABI += 1 << 16 }), false},
		"a newer minor ABI":  {node(func(n *handoff.Node) { n.Versions.ABI++ }), false},
		"an older minor ABI": {node(func(n *handoff.Node) { n.Versions.ABI-- }), true},
		"another depot":      {node(func(n *handoff.Node) { n.Versions.Depot++ }), false},
		"another protocol":   {node(func(n *handoff.Node) { n.Versions.Attach++ }), false},
		"another peer":       {node(func(n *handoff.Node) { n.Versions.Peer++ }), true},
		"another boot":       {node(func(n *handoff.Node) { n.Boot = "x" }), false},
		"no incarnation":     {node(func(n *handoff.Node) { n.Incarnation = "" }), false},
		"no node":            {change(handoff.NodeKey, func(i *depot.Item) { i.Key = "edon" }), false},
		"node is nonsense":   {change(handoff.NodeKey, func(i *depot.Item) { i.Meta = json.RawMessage(`[]`) }), false},
		"no domain":          {change("domain/default", func(i *depot.Item) { i.Key = "domain/other" }), false},
		"domain's bell":      {change("domain/default", fewer), false},
		"other ids":          {change("domain/default", func(i *depot.Item) { i.Meta = metaOf(t, domainMeta{MethodBits: 3}) }), false},
		"a method's id":      {change("method/default/0", func(i *depot.Item) { i.Key = "method/default/1" }), false},
		"a worker's FDs":     {change("worker/default/3", fewer), false},
		"a worker's id":      {change("worker/default/3", func(i *depot.Item) { i.Key = "worker/default/4096" }), false},
		"region nonsense":    {change("region/default/1", func(i *depot.Item) { i.Meta = nil }), false},
		"a lane's id":        {change("lane/default/1", func(i *depot.Item) { i.Key = "lane/default/-1" }), false},
		"an unknown kind":    {change("lane/default/1", func(i *depot.Item) { i.Key = "thing/default/1" }), false},
	} {
		before := openNow(t)
		items, worker := leftBy(t, cfg)
		items = c.change(items)
		kept := version.Own()
		for _, i := range items {
			var n handoff.Node
			if c.usable && i.Key == handoff.NodeKey && json.Unmarshal(i.Meta, &n) == nil {
				kept = n.Versions
			}
		}
		k := &conductor{cfg: cfg, log: zerolog.Nop()}
		left, err := k.takeOver(items)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if k.identity.Versions != kept {
			t.Errorf("%s: before it serves it has made the memory one of %+v, of %+v", name, k.identity.Versions, kept)
		}
		if k.identify(); k.identity.Versions != version.Own() {
			t.Errorf("%s: when it serves it has %+v", name, k.identity.Versions)
		}
		if adopted := k.incarnation == "0123456789abcdef"; adopted != c.usable || k.salt == 0 {
			t.Errorf("%s: incarnation %s, salt %#x", name, k.incarnation, k.salt)
		}
		if d := left.domains["default"]; c.usable && (d == nil || d.LastID != 3 || len(d.workers) != 1 || len(d.regions) != 1 || len(d.lanes) != 1 || len(d.methods) != 1) {
			t.Errorf("%s: %+v", name, d)
		} else if !c.usable && len(left.domains) > 0 {
			t.Errorf("%s: %d domains are left", name, len(left.domains))
		}
		left.close()
		m, _, err := worker.Recv()
		told := err == nil && m.Type == attach.TypeGoodbye && strings.Contains(m.Reason, "attach again")
		if !c.usable && !told && !strings.Contains(name, "worker") || c.usable && !errors.Is(err, attach.ErrClosed) {
			t.Errorf("%s: the worker got %+v, %v", name, m, err)
		}
		_ = worker.Close()
		if now := openNow(t); now > before {
			t.Errorf("%s: %d descriptors, %d before", name, now, before)
		}
	}
}

// What is kept becomes that of this program as soon as it has a process that may use what the program before does not know, and not before.
func TestIdentifiedForNewerProcesses(t *testing.T) {
	const older = shm.ABIVersion - 1
	for name, c := range map[string]struct {
		worker *worker
		own    bool
	}{
		"a service as old as what is kept": {&worker{role: attach.RoleService, abi: older}, false},
		"a service of this release":        {&worker{role: attach.RoleService, abi: shm.ABIVersion}, true},
		"a client of the next release":     {&worker{role: attach.RoleClient, abi: shm.ABIVersion + 1}, true},
		"a tenant":                         {&worker{role: attach.RoleService, abi: shm.ABIVersion, pid: ownPID}, false},
		"a tool":                           {&worker{role: attach.RoleTool, abi: shm.ABIVersion}, false},
	} {
		k := &conductor{log: zerolog.Nop(), identity: &handoff.Node{Versions: version.Own()}}
		k.identity.Versions.ABI = older
		k.identifyFor(c.worker)
		if own := k.identity.Versions == version.Own(); own != c.own {
			t.Errorf("%s: %v", name, k.identity.Versions)
		}
	}
}

func openNow(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Workers of a domain that the node does not have any more are told so.
func TestTakeOverWithoutADomain(t *testing.T) {
	cfg, err := config.Parse("test", []byte("[node]\nname = \"a\"\nsocket = \"/tmp/none.sock\"\n[[domain]]\nname = \"blue\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	items, worker := leftBy(t, cfg)
	k := &conductor{cfg: cfg, log: zerolog.Nop()}
	left, err := k.takeOver(items)
	if err != nil {
		t.Fatal(err)
	}
	if k.incarnation != "0123456789abcdef" {
		t.Errorf("incarnation %s", k.incarnation)
	}
	left.close()
	if m, _, err := worker.Recv(); err != nil || m.Type != attach.TypeGoodbye || !strings.Contains(m.Reason, "no domain default any more") {
		t.Errorf("the worker got %+v, %v", m, err)
	}
}

// What is left of a domain that this node does not have any more goes before the domain: a core that dies in between leaves nothing without its
// domain, for which the next one would end the attachments of all.
func TestUnknownDomainGoesLast(t *testing.T) {
	l := &leftovers{}
	for _, key := range []string{"node", "domain/x", "domain/xx", "worker/x/1", "worker/xx/1", "method/x/3"} {
		l.items = append(l.items, &depot.Item{Key: key})
	}
	if got, want := l.keysOf("x"), []string{"worker/x/1", "method/x/3", "domain/x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
