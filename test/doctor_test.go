package test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

// modest is what keeps a check-up from depending on the machine's limits.
const modest = "[limits]\nworkers = 10\n"

// finding is one of "rdmad doctor --json".
type finding struct{ Level, Check, Found, Remedy string }

// findings reads the output of "rdmad doctor --json".
func findings(t *testing.T, r ran) map[string]finding {
	t.Helper()
	var list []finding
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		t.Fatalf("%v:\n%s%s", err, r.out, r.errOut)
	}
	byCheck := map[string]finding{}
	for _, f := range list {
		byCheck[f.Check] = f // the worst of a check comes last
		if (f.Level == "OK") != (f.Remedy == "") {
			t.Errorf("%+v", f)
		}
	}
	return byCheck
}

// The devices are a list, also if there are none.
func TestDevices(t *testing.T) {
	r := run(t, rdmad(t, "devices", "--json"))
	r.check(t, "devices --json", 0)
	var list []struct {
		Name  string
		Ports []json.RawMessage
	}
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || list == nil {
		t.Errorf("%v:\n%s", err, r.out)
	}
	want := "rdma link add"
	if len(list) > 0 {
		want = "device " + list[0].Name
	}
	run(t, rdmad(t, "devices")).check(t, "devices", 0, want)
}

// Check-ups of nodes that do not run.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	// A socket that a daemon has left behind.
	dead := filepath.Join(dir, "dead.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: dead, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	node := "[node]\nname = \"a\"\nlisten = \"127.0.0.1:1\"\nsocket = \"" + dir + "/a.sock\"\n" + modest
	peer := "[[peer]]\nname = \"b\"\naddress = \"127.0.0.1:1\"\n"
	file := func(name, text string) string {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	good := file("good.toml", node+peer)
	bad := file("bad.toml", "[node]\nnam = \"a\"\n[agent]\ncount = 0\n")
	left := file("left.toml", strings.Replace(node, "a.sock", "dead.sock", 1))
	want := file("verbs.toml", node+peer+"[fabric]\nprovider = \"verbs\"\n[verbs]\ndevice = \"none_0\"\n")
	auto := file("auto.toml", node+peer+"[fabric]\nprovider = \"auto\"\n[verbs]\ndevice = \"none_0\"\n")
	for _, c := range []struct {
		args   string
		status int
		words  []string
	}{
		{"-c " + good, 0, []string{"OK    config", "none runs at", "0 warnings, 0 failures"}},
		{"-c " + bad, 2, []string{bad + ":2: node.nam", bad + ":4: agent.count", "-> correct it", "failures"}},
		{"-c " + dir + "/none.toml", 2, []string{"none.toml", "-> name the daemon's configuration"}},
		{"-c " + left, 1, []string{"WARN  daemon", "killed", "-> start it: rdmad run -c"}},
		{"-c " + good + " --socket " + dead, 2, []string{"FAIL  daemon", dead, "-> start it"}},
		{"-c " + good + " --peer b", 2, []string{"127.0.0.1:1", "connection refused"}},
		{"-c " + good + " --peer c", 2, []string{`"c" is not a [[peer]]; known: b`}},
		{"-c " + want, 2, []string{"FAIL  port", "none_0", "rdmad devices"}},
		{"-c " + auto, 1, []string{"WARN  port", "none_0", "0 failures"}},
	} {
		cmd := rdmad(t, append([]string{"doctor"}, strings.Fields(c.args)...)...)
		cmd.Env = append(cmd.Env, "RDMAD_SOCKET=")
		r := run(t, cmd)
		r.check(t, "doctor "+c.args, c.status, c.words...)
		if r.errOut != "" {
			t.Errorf("doctor %s complains: %s", c.args, r.errOut)
		}
	}
	r := run(t, rdmad(t, "doctor", "--json", "-c", bad))
	r.check(t, "doctor --json", 2)
	if f := findings(t, r)["config"]; f.Level != "FAIL" || !strings.HasPrefix(f.Found, bad+":4: ") {
		t.Errorf("%+v", f)
	}
	// A wrong command line has the same status, and finds nothing.
	if r := run(t, rdmad(t, "doctor", "--nonsense")); r.status != 2 || r.out != "" || !strings.Contains(r.errOut, "rdmad doctor --help") {
		t.Errorf("%+v", r)
	}
}

// A check-up of running nodes.
func TestDoctorRunning(t *testing.T) {
	c := newPair(t, sandbox.Settings{Extra: modest})
	c.connected("a", "b")
	file := filepath.Join(c.dir, "a.toml")
	checkUp := func(status int, args ...string) map[string]finding {
		t.Helper()
		r := run(t, rdmad(t, append([]string{"doctor", "--json", "-c", file}, args...)...))
		r.check(t, "doctor", status)
		return findings(t, r)
	}
	f := checkUp(0, "--peer", "b")
	for check, words := range map[string]string{
		"daemon": "node a runs at " + c.socket("a"), "fabric": "uses tcp, wanted is tcp", "peer": "b has been connected for",
		"files": "the daemon's core (pid ",
	} {
		if !strings.Contains(f[check].Found, words) {
			t.Errorf("%s: %+v", check, f[check])
		}
	}
	resume := halt(t, c.status("a").PIDs.Supervisor)
	f = checkUp(2)
	told := run(t, rdmad(t, "reload", "--timeout", "4s", "--socket", c.socket("a")))
	told.check(t, "reload", 1, "node a was told, and has not said within 4s", "--timeout", "rdmad doctor")
	resume()
	if d := f["daemon"]; d.Level != "FAIL" || !strings.Contains(d.Found, "is halted (SIGSTOP, or a debugger)") {
		t.Errorf("a supervisor that is halted: %+v", d)
	}
	c.stop("b")
	eventually(t, "node a notices", func() bool { return c.status("a").Peers[0].State == "down" })
	ping := func(args ...string) ran {
		return run(t, rdmad(t, append([]string{"ping", "b", "--socket", c.socket("a")}, args...)...))
	}
	ping("--timeout", "1m").check(t, "ping", 1, "node b is not connected")
	soon := ping("--timeout", "2s")
	for try := 0; try < 5 && !strings.Contains(soon.errOut, "has not answered"); try++ { // nobody could attach in time
		soon = ping("--timeout", "2s")
	}
	soon.check(t, "ping", 1, "node b has not answered within 2s", "rdmad status")
	if f := checkUp(1)["peer"]; f.Level != "WARN" {
		t.Errorf("%+v", f)
	}
	f = checkUp(2, "--peer", "b")
	if f["peer"].Level != "FAIL" || !strings.Contains(f["peer address"].Found, "connection refused") {
		t.Errorf("%+v", f)
	}
	if f := checkUp(1, "--socket", c.socket("a"), "-c", filepath.Join(c.dir, "b.toml"))["daemon"]; !strings.Contains(f.Found, "configures node b") {
		t.Errorf("%+v", f)
	}
}

// Asked for verbs without having it, a node does not start; asked for the best
// there is, it uses tcp and says so wherever one looks.
func TestFallback(t *testing.T) {
	if verbs.Built || *fabricName == verbs.Name || *prebuilt != "" {
		t.Skip("the programs have the provider; this is about programs without it: go test without -tags verbs")
	}
	c := newCluster(t, sandbox.Settings{Fabric: "verbs"}, "a", "b")
	run(t, rdmad(t, "run", "-c", filepath.Join(c.dir, "a.toml"))).
		check(t, "run", 1, `fabric.provider = "verbs"`, "-tags verbs", "libibverbs-dev", "librdmacm-dev")

	c = newPair(t, sandbox.Settings{Fabric: "auto", Verbs: map[string]string{"gid_index": "3"}, Extra: modest})
	c.connected("a", "b")
	if s := c.status("a"); s.Fabric != "tcp" || s.FabricWanted != "auto" || !strings.Contains(s.FallbackReason, "-tags verbs") {
		t.Errorf("status: %+v", s)
	}
	run(t, rdmad(t, "status", "--socket", c.socket("a"))).
		check(t, "status", 0, "fabric tcp", `WARNING: fabric.provider = "auto" fell back to tcp`, "rdmad doctor")
	run(t, rdmad(t, "doctor", "-c", filepath.Join(c.dir, "a.toml"))).
		check(t, "doctor", 1, "WARN  fabric", "fell back to tcp", "WARN  provider")
	log, err := os.ReadFile(filepath.Join(c.dir, "a.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), "falls back to tcp"); n != 1 {
		t.Errorf("%d lines of the log say that it falls back:\n%s", n, log)
	}
}

// connected waits until two nodes have their link.
func (c *cluster) connected(names ...string) {
	c.t.Helper()
	for _, name := range names {
		eventually(c.t, "node "+name+" is connected", func() bool {
			p := c.status(name).Peers
			return len(p) > 0 && p[0].State == "connected"
		})
	}
}
