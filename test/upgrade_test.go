package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/version"
)

// upgraded is what the command says as JSON.
type upgraded struct {
	CoreBefore int `json:"core_before"`
	CoreAfter  int `json:"core_after"`
	status.Upgrade
}

// replaceable is a node whose program can be replaced.
type replaceable struct {
	*cluster
	program string
}

// newReplaceable starts node a from a program of its own.
func newReplaceable(t *testing.T) *replaceable {
	t.Helper()
	c := newCluster(t, sandbox.Settings{}, "a")
	r := &replaceable{cluster: c, program: filepath.Join(c.dir, "program")}
	own, err := os.ReadFile(programs.rdmad)
	if err != nil {
		t.Fatal(err)
	}
	r.replace(own)
	ports, err := sandbox.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	if c.nodes["a"], err = sandbox.NewNode(r.program, c.dir, "a", ports[0], nil, sandbox.Settings{Fabric: *fabricName}); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	return r
}

// replace puts another program where the node's was, as an installation does.
func (r *replaceable) replace(content []byte) {
	r.t.Helper()
	if err := os.WriteFile(r.program+".new", content, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.program+".new", r.program); err != nil {
		r.t.Fatal(err)
	}
}

// script makes a program that says the versions of the real one and does something else
// when it is to be a core.
func script(core string) []byte {
	return fmt.Appendf(nil, "#!/bin/sh\ncase \"$*\" in\n*--probe*) exec %s core --probe ;;\nesac\n%s\n", programs.rdmad, core)
}

// built builds rdmad with variables of package version set.
func built(t *testing.T, set ...string) []byte {
	t.Helper()
	if *prebuilt != "" {
		t.Skip("there is no Go to build another program with")
	}
	file := filepath.Join(t.TempDir(), "rdmad")
	var flags []string
	for _, s := range set {
		flags = append(flags, "-X github.com/rdmad/rdmad/internal/version."+s)
	}
	if out, err := exec.Command("go", "build", "-o", file, "-ldflags", strings.Join(flags, " "), "../cmd/rdmad").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// upgrade runs the command and checks how it ends.
func (r *replaceable) upgrade(exit int, result, reason string) (u upgraded) {
	r.t.Helper()
	got := run(r.t, rdmad(r.t, "upgrade", "--json", "--socket", r.socket("a")))
	if err := json.Unmarshal([]byte(got.out), &u); err != nil {
		r.t.Fatalf("%v: %+v", err, got)
	}
	if got.status != exit || u.Result != result || !strings.Contains(u.Reason, reason) || (u.Reason == "") != (result == status.UpgradeDone) {
		r.t.Errorf("status %d, want %d: %+v, want %q because of %q", got.status, exit, u, result, reason)
	}
	if s := r.status("a"); s.Upgrade == nil || *s.Upgrade != u.Upgrade || s.PIDs.Core != u.CoreAfter {
		r.t.Errorf("the status has %+v and core %d, the command said %+v", s.Upgrade, s.PIDs.Core, u)
	}
	return u
}

// The core is replaced under workers that are attached; a program that does not fit, or
// does not start, is not their business either.
func TestUpgrade(t *testing.T) {
	r := newReplaceable(t)
	startService(t, r.cluster, "a", "jobs")
	conn := r.attach("a")
	works := func(when string) {
		t.Helper()
		if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	works("at first")
	u := r.upgrade(0, status.UpgradeDone, "")
	if u.CoreBefore == u.CoreAfter || u.PauseMS <= 0 {
		t.Errorf("%+v", u)
	}
	works("after an upgrade to the same")
	same := u.CoreAfter

	r.replace(built(t, "vault=other", "Version=7.7.7"))
	if u = r.upgrade(1, status.UpgradeRefused, "vault version other"); u.CoreAfter != same || u.To.Version != "7.7.7" || u.PauseMS != 0 {
		t.Errorf("%+v", u)
	}
	r.replace([]byte("no program"))
	r.upgrade(1, status.UpgradeRefused, "does not say its versions")
	r.replace([]byte("#!/bin/sh\necho '{}'\n"))
	r.upgrade(1, status.UpgradeRefused, "ABI 0.0")
	if err := os.Remove(r.program); err != nil {
		t.Fatal(err)
	}
	if u = r.upgrade(1, status.UpgradeRefused, "no such file"); u.CoreAfter != same {
		t.Errorf("%+v", u)
	}
	works("after upgrades that were refused")

	r.replace(script("exit 3"))
	if u = r.upgrade(1, status.UpgradeUndone, "exit status 3"); u.CoreAfter == same || u.PauseMS <= 0 {
		t.Errorf("%+v", u)
	}
	works("after a program that does not start")
	r.killCore("a") // followed by the program that works, whose file is not there any more
	works("after a kill")

	r.replace(built(t, "Version=7.7.7"))
	if u = r.upgrade(0, status.UpgradeDone, ""); u.From.Version != version.Version || u.To.Version != "7.7.7" || r.status("a").Version != "7.7.7" {
		t.Errorf("%+v", u)
	}
	works("after an upgrade to another version")
	if got := run(t, rdmad(t, "status", "--socket", r.socket("a"))); !strings.Contains(got.out, "from rdmad "+version.Version+" to 7.7.7: done") {
		t.Errorf("status says %s", got.out)
	}
}

// gated makes a program that is the real one as long as there is no file at gate, and otherwise does something else
// when it is to be a core.
func gated(gate, core string) []byte {
	return script(fmt.Sprintf("test -e %s || exec %s \"$@\"\n%s", gate, programs.rdmad, core))
}

// A program whose core does not become ready, or cannot start any more, can be replaced: it is what keeps the workers.
func TestUpgradeOfWhatDoesNotStart(t *testing.T) {
	for name, core := range map[string]string{"hangs": "exec sleep 600", "ends": "exit 3"} {
		t.Run(name, func(t *testing.T) {
			r := newReplaceable(t)
			startService(t, r.cluster, "a", "jobs")
			conn := r.attach("a")
			gate := filepath.Join(r.dir, "gate")
			r.replace(gated(gate, core+" # "+gate))
			supervisor := r.status("a").PIDs.Supervisor
			r.upgrade(0, status.UpgradeDone, "")
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			kill(t, r.status("a").PIDs.Core)
			own, err := os.ReadFile(programs.rdmad)
			if err != nil {
				t.Fatal(err)
			}
			r.replace(own)
			if got := run(t, rdmad(t, "upgrade", "--timeout=100ms", "--socket", r.socket("a"))); got.status != 1 || !strings.Contains(got.errOut, fmt.Sprint("kill -USR2 ", supervisor)) {
				t.Errorf("without a core: %+v", got)
			}
			if err := syscall.Kill(supervisor, syscall.SIGUSR2); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
				t.Error(err)
			}
			// A core serves a moment before it hears how it came to be.
			eventually(t, "the core knows of the upgrade, and of its end", func() bool {
				u := r.status("a").Upgrade
				return u != nil && u.PauseMS > 0
			})
			if u := r.status("a").Upgrade; u.Number != 2 || u.Result != status.UpgradeDone || u.From.Version != version.Version {
				t.Errorf("%+v", u)
			}
		})
	}
}

// A program that does not start is replaced by the old one also if the core dies while the upgrade is asked for.
func TestUpgradeBesideDeath(t *testing.T) {
	r := newReplaceable(t)
	startService(t, r.cluster, "a", "jobs")
	conn := r.attach("a")
	supervisor := r.status("a").PIDs.Supervisor
	r.replace(script("exit 3"))
	for n := range 5 {
		kill(t, r.status("a").PIDs.Core)
		if err := syscall.Kill(supervisor, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Call(bounded(t), "a/jobs/who", nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the upgrade is over", func() bool {
			s, err := askStatus(t, r.socket("a"))
			return err == nil && s.Upgrade != nil && s.Upgrade.Number == n+1 && s.Upgrade.PauseMS > 0
		})
		if u := r.status("a").Upgrade; u.Result != status.UpgradeUndone {
			t.Errorf("%+v", u)
		}
	}
}

// Who asks for an upgrade while another is under way, with another program, is told how its own went.
func TestUpgradeDuringAnother(t *testing.T) {
	r := newReplaceable(t)
	asked := filepath.Join(r.dir, "asked")
	r.replace(fmt.Appendf(nil, "#!/bin/sh\n: > %s\nexec sleep 600\n", asked))
	first := begin(t, rdmad(t, "upgrade", "--socket", r.socket("a")))
	eventually(t, "the first program is asked", func() bool { return exists(asked) })
	own, err := os.ReadFile(programs.rdmad)
	if err != nil {
		t.Fatal(err)
	}
	r.replace(own)
	u := r.upgrade(0, status.UpgradeDone, "")
	first.end() // told of the one or the other: the status has the last one only
	if u.Number != 2 || u.CoreAfter == u.CoreBefore {
		t.Errorf("%+v", u)
	}
}
