package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/status"
)

// machine is an Env with the file system that its Root is.
type machine struct {
	*Env
	files fstest.MapFS
}

// put makes a file.
func (m *machine) put(name, text string) {
	m.files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
}

// node makes a device node with a mode.
func (m *machine) node(name string, mode os.FileMode) {
	m.files[name] = &fstest.MapFile{Mode: mode | os.ModeDevice | os.ModeCharDevice, Sys: &syscall.Stat_t{Uid: 0, Gid: 110}}
}

const limitsFile = "Limit                     Soft Limit           Hard Limit           Units     \n" +
	"Max locked memory         %s              %s              bytes     \n" +
	"Max open files            %s                20000                files     \n"

// parse reads a configuration for tests.
func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const twoNodes = "[node]\nname = 'a'\nlisten = ':1'\nsocket = '/run/rdmad/s'\n[[peer]]\nname = 'b'\naddress = '192.0.2.2:7471'\n"

// healthy is a machine of node a on which verbs works and everything is OK, without
// a daemon.
func healthy(t *testing.T) *machine {
	t.Helper()
	m := &machine{files: fstest.MapFS{}}
	m.Env = &Env{
		Root: m.files, OpenNode: func(string) error { return nil }, Dial: func(context.Context, string) error { return nil },
		Writable: func(string) bool { return true },
		Config:   parse(t, twoNodes+"[fabric]\nprovider = 'verbs'\n"), ConfigFile: "test.toml", Built: true,
		Devices: []verbs.DeviceInfo{{
			Name: "mlx5_0", Node: "/dev/infiniband/uverbs0", Limits: verbs.Limits{MaxQP: 4, MaxMR: 4, MaxPD: 4},
			Ports: []verbs.PortInfo{{
				Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", ActiveMTU: 1024, MaxMTU: 4096, Chosen: 3, Why: "routable",
				GIDs: []verbs.GID{
					{Index: 0, Addr: netip.MustParseAddr("fe80::1"), Type: "RoCE v2"},
					{Index: 2, Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Type: "RoCE v1"},
					{Index: 3, Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Type: "RoCE v2"},
				},
			}},
		}},
		DaemonErr: attach.ErrNotRunning, Socket: "/run/rdmad/s", Version: "1.0",
	}
	m.put("proc/self/limits", fmt.Sprintf(limitsFile, "unlimited", "unlimited", "20000"))
	m.put("sys/module/ib_uverbs/refcnt", "0\n")
	m.node("dev/infiniband/uverbs0", 0o660)
	return m
}

// running makes the machine one on which the daemon of node a runs.
func (m *machine) running() *status.Node {
	m.DaemonErr = nil
	m.Daemon = &status.Node{
		Node: "a", Version: "1.0", PIDs: status.PIDs{Supervisor: 76, Core: 77}, Fabric: "verbs", FabricWanted: "verbs", FabricDetail: "mlx5_0 port 1",
		Peers: []status.Peer{{Name: "b", Address: "192.0.2.2:7471", State: "connected", SinceS: 3, Services: 1}},
	}
	m.put("proc/77/stat", "77 (rdmad) S 76 77 0\n")
	m.put("proc/77/limits", fmt.Sprintf(limitsFile, "unlimited", "unlimited", "20000"))
	return m.Daemon
}

// expect runs everything and looks at one check: its worst level, and words that
// its findings must have. A finding that is not OK must say what to do.
func (m *machine) expect(t *testing.T, check string, level Level, words ...string) {
	t.Helper()
	var mine []Finding
	var text strings.Builder
	for _, f := range Run(t.Context(), m.Env) {
		if (f.Level != OK) != (f.Remedy != "") {
			t.Errorf("%s: level %v with remedy %q", f.Check, f.Level, f.Remedy)
		}
		if f.Check == check {
			mine = append(mine, f)
			fmt.Fprintf(&text, "%s\n%s\n", f.Found, f.Remedy)
		}
	}
	if len(mine) == 0 || Worst(mine) != level {
		t.Errorf("%s: %+v, want %v", check, mine, level)
	}
	for _, w := range words {
		if !strings.Contains(text.String(), w) {
			t.Errorf("%s: no %q in:\n%s", check, w, text.String())
		}
	}
}

// expectNone runs all checks and wants no findings of one.
func (m *machine) expectNone(t *testing.T, check string) {
	t.Helper()
	for _, f := range Run(t.Context(), m.Env) {
		if f.Check == check {
			t.Errorf("%+v", f)
		}
	}
}

func TestHealthy(t *testing.T) {
	m := healthy(t)
	for _, name := range []string{"without a daemon", "with a daemon"} {
		for _, f := range Run(t.Context(), m.Env) {
			if f.Level != OK {
				t.Errorf("%s: %+v", name, f)
			}
		}
		m.running()
	}
}

func TestText(t *testing.T) {
	m := healthy(t)
	m.ConfigErr, m.Built = os.ErrNotExist, false
	m.ConfigFile = "/etc/rdmad/config.toml"
	found := Run(t.Context(), m.Env)
	last := found[len(found)-1]
	if Worst(found) != Fail || last.Level != Fail || found[0].Level != OK {
		t.Errorf("the worst is not last: %+v", found)
	}
	text := Text(found)
	for _, want := range []string{"WARN  config", "FAIL  provider", "-> go build -tags verbs", "1 warning, 1 failure\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if Worst(nil) != OK {
		t.Error("nothing is not OK")
	}
}

// JSON is the same each time, and has every member in every finding.
func TestJSON(t *testing.T) {
	m := healthy(t)
	m.running().Peers[0].State = "down"
	encode := func() string {
		b, err := json.Marshal(Run(t.Context(), m.Env))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := encode()
	for range 3 {
		if again := encode(); again != first {
			t.Fatalf("first\n%s\nthen\n%s", first, again)
		}
	}
	var list []map[string]string
	if err := json.Unmarshal([]byte(first), &list); err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if len(f) != 4 || f["check"] == "" || f["found"] == "" || f["level"] != "OK" && f["level"] != "WARN" && f["level"] != "FAIL" {
			t.Errorf("%v", f)
		}
	}
}

// Without RDMA in the configuration nothing of it is looked at.
func TestNoRDMA(t *testing.T) {
	m := healthy(t)
	m.Config = parse(t, twoNodes)
	m.Devices, m.Built, m.OpenNode = nil, false, nil
	delete(m.files, "sys/module/ib_uverbs/refcnt")
	for _, f := range Run(t.Context(), m.Env) {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
	}
}

// A daemon without a configuration that can be found: its status has what counts.
func TestAdopt(t *testing.T) {
	m := healthy(t)
	m.running()
	m.Config, m.ConfigErr = config.Default(), os.ErrNotExist
	m.expect(t, "memlock", OK, "1 peer x 1 domain x 2 rings")
	m.expect(t, "fabric", OK, "uses verbs")
	m.expect(t, "daemon", OK, "node a")
	if m.expect(t, "config", Warn, "assume the defaults"); m.Config.Node.Name != "a" {
		t.Errorf("%+v", m.Config.Node)
	}
}
