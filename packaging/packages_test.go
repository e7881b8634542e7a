package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// packages are what the tests look at.
type packages struct {
	dir, version string
	files        []string
}

// quiet has a build tell the test's log what was not built.
func (o options) quiet(t *testing.T) options {
	o.say = func(text string) {
		if strings.Contains(text, "not built") {
			t.Log(text)
		}
	}
	return o
}

var (
	once  sync.Once
	first packages
)

// built returns packages of this tree, which are built once for all tests.
func built(t *testing.T) packages {
	t.Helper()
	once.Do(func() { first = buildAgain(t) })
	if first.dir == "" {
		t.Fatal("there are no packages, see the first test that failed")
	}
	return first
}

// buildAgain builds packages.
func buildAgain(t *testing.T) packages {
	t.Helper()
	p := packages{dir: filepath.Join(scratch, t.Name()), version: "0.0.1"}
	files, err := build(t.Context(), options{repository: "..", out: p.dir, version: p.version, revision: "abcdef0"}.quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	p.files = files
	return p
}

// scratch is where packages of all tests are.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "rdmad-packaging-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		scratch = dir
		return m.Run()
	}())
}

// The same source makes the same packages, byte by byte.
func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	one := buildAgain(t)
	sums, err := os.ReadFile(filepath.Join(one.dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(sums, []byte("\n")); n != len(one.files)-1 {
		t.Errorf("%d sums of %q", n, one.files)
	}
	if err := os.RemoveAll(one.dir); err != nil {
		t.Fatal(err)
	}
	two := buildAgain(t)
	again, err := os.ReadFile(filepath.Join(two.dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sums, again) {
		t.Errorf("first\n%s, then\n%s", sums, again)
	}
}

// The checksums are of all packages in the directory, whichever run has made them, and of nothing else.
func TestSums(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rdmad_1.0-1_arm64.deb", "rdmad_1.0-1_amd64.deb", "rdmad-1.0-1.x86_64.rpm", "rdmad_1.0-1_amd64.deb.part", "SHA256SUMS", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := sums(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if sum != fmt.Sprintf("%x", sha256.Sum256([]byte(name))) {
			t.Errorf("%s has the sum %s", name, sum)
		}
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"rdmad-1.0-1.x86_64.rpm", "rdmad_1.0-1_amd64.deb", "rdmad_1.0-1_arm64.deb"}) {
		t.Errorf("sums of %q", names)
	}
}

// Scripts are shell, and do nothing for calls that are not theirs.
func TestScripts(t *testing.T) {
	for _, name := range []string{"files/postinst", "files/prerm", "files/postrm", "chroot.sh"} {
		if out, err := exec.Command("sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for script, calls := range map[string][]string{
		"files/postinst": {"abort-upgrade 1", "triggered"}, "files/prerm": {"upgrade 2", "failed-upgrade 1", "1", "remove in-favour rdmad-rdma 1"},
		"files/postrm": {"upgrade 2", "abort-install", "disappear x"},
	} {
		for _, call := range calls {
			c := exec.Command("sh", append([]string{script}, strings.Fields(call)...)...)
			c.Env = []string{"PATH=/nonexistent"}
			if out, err := c.CombinedOutput(); err != nil || len(out) > 0 && script != "files/postrm" {
				t.Errorf("%s %s: %v\n%s", script, call, err, out)
			}
		}
	}
}

// Where rpm exchanges one package for the other, the one that goes stops nothing; otherwise it does.
func TestRPMExchange(t *testing.T) {
	for status, want := range map[string]string{"0": "", "1": "systemctl --no-reload disable rdmad.socket\nsystemctl --no-reload disable rdmad.service\n"} {
		bin := t.TempDir()
		did := filepath.Join(bin, "did")
		for name, text := range map[string]string{
			"rpm":       "test \"$*\" = '-q --quiet rdmad rdmad-rdma' && exit " + status,
			"systemctl": "case $1 in --no-reload) echo systemctl \"$@\" >>" + did + ";; esac",
		} {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c := exec.Command("sh", "files/prerm", "0")
		c.Env = []string{"PATH=" + bin}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if text, err := os.ReadFile(did); string(text) != want || err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("rpm -q says %s: %q, %v", status, text, err)
		}
	}
}

// A package that is installed over a running daemon tells that, with what systemctl has since version 230, also while its core
// cannot start, and says so where it cannot.
func TestUpgradeOfRunningDaemon(t *testing.T) {
	for _, c := range []struct {
		state           string
		process, exists bool // what systemctl says, and what is so
		told, complains bool
	}{
		{state: "active", process: true, exists: true, told: true},
		{state: "activating", process: true, exists: true, told: true},
		{state: "active", complains: true},
		{state: "activating", process: true, complains: true},
		{state: "activating"}, // it waits for its next start
		{state: "inactive"},
		{state: "failed"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		daemon := exec.CommandContext(ctx, "sh", "-c", "trap 'exit 7' USR2; echo ready; while :; do sleep 0.01; done")
		out, err := daemon.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := daemon.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		end := func() {
			_ = daemon.Process.Kill() // it may have ended
			_ = daemon.Wait()
		}
		if !c.exists {
			end()
		}
		pid := 0
		if c.process {
			pid = daemon.Process.Pid
		}
		said, err := postinst(t, t.TempDir(), fmt.Sprintf("case \"$*\" in 'show --property=MainPID --value rdmad.service') echo %d ;; "+
			"'show --property=ActiveState --value rdmad.service') echo %s ;; 'daemon-reload') ;; *) exit 1 ;; esac", pid, c.state))
		if err != nil || strings.Contains(said, "rdmad upgrade") != c.complains {
			t.Errorf("%+v: %v\n%s", c, err, said)
		}
		if !c.told {
			end()
		} else if err := daemon.Wait(); daemon.ProcessState.ExitCode() != 7 {
			t.Errorf("%+v: the daemon ended with %v", c, err)
		}
		if !c.told && daemon.ProcessState.ExitCode() == 7 {
			t.Errorf("%+v: the daemon was told", c)
		}
	}
}

// postinst runs the script where there is nothing but a shell, what is in dir, which has the place of /run, and a systemctl.
func postinst(t *testing.T, dir, systemctl string) (string, error) {
	t.Helper()
	script, err := os.ReadFile("files/postinst")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"systemctl": systemctl, "systemd-sysusers": "", "systemd-tmpfiles": "", "postinst": strings.ReplaceAll(string(script), "/run/", dir+"/")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("sh", filepath.Join(dir, "postinst"), "configure", "1.0")
	c.Env = []string{"PATH=" + dir}
	said, err := c.CombinedOutput()
	return string(said), err
}

// What ran before apt-get exchanged the packages is started again. Where that fails it is said, and does not keep the package from being installed.
func TestExchangeSaysWhatDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"find", "rm"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	stopped, did := filepath.Join(dir, "rdmad.stopped"), filepath.Join(dir, "did")
	if err := os.WriteFile(stopped, []byte("rdmad.socket\nrdmad.service\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	said, err := postinst(t, dir, "echo \"$@\" >>"+did+"; test \"$*\" != 'start rdmad.service'")
	if err != nil || !strings.Contains(said, "rdmad.service ran before") || strings.Contains(said, "rdmad.socket") {
		t.Errorf("%v\n%s", err, said)
	}
	if text, err := os.ReadFile(did); string(text) != "daemon-reload\nstart rdmad.socket\nstart rdmad.service\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(stopped); err == nil {
		t.Error("it would be started again by the next upgrade, too")
	}
}

// wanted is what both packages of every format have.
var wanted = []string{
	"/etc/rdmad", "/etc/rdmad/config.toml", "/usr/bin/rdmad", "/usr/lib/systemd/system/rdmad.service",
	"/usr/lib/systemd/system/rdmad.service.d/10-user.conf", "/usr/lib/systemd/system/rdmad.socket", "/usr/lib/sysusers.d/rdmad.conf",
	"/usr/lib/tmpfiles.d/rdmad.conf", "/usr/share/bash-completion/completions/rdmad", "/usr/share/fish/vendor_completions.d/rdmad.fish",
	"/usr/share/man/man1/rdmad.1.gz", "/usr/share/man/man1/rdmad-status.1.gz", "/usr/share/man/man5/rdmad-config.5.gz",
}

func checkContents(t *testing.T, name string, have, more []string) {
	t.Helper()
	for _, w := range append(slices.Clone(wanted), more...) {
		if !slices.Contains(have, w) {
			t.Errorf("%s has no %s", name, w)
		}
	}
}

func TestDebContents(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed: apt-get install dpkg")
	}
	for _, file := range built(t).files {
		if filepath.Ext(file) != ".deb" {
			continue
		}
		var names []string
		for line := range strings.Lines(tool(t, "dpkg-deb", "-c", file)) {
			f := strings.Fields(line)
			if f[1] != "root/root" || strings.ContainsAny(f[0][5:6]+f[0][8:9], "w") {
				t.Errorf("%s: %s", filepath.Base(file), line)
			}
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(f[5], "."), "/"))
		}
		rdma := strings.Contains(file, "-rdma_")
		more := []string{"/usr/share/zsh/vendor-completions/_rdmad", "/usr/share/doc/rdmad/copyright", "/usr/share/doc/rdmad/changelog.Debian.gz", "/usr/share/doc/rdmad/changelog.gz"}
		fields := tool(t, "dpkg-deb", "-f", file)
		expected := []string{"Conflicts: rdmad-rdma\n", "Replaces: rdmad-rdma\n", "Depends: passwd\n"}
		if rdma {
			for i := range more {
				more[i] = strings.ReplaceAll(more[i], "/doc/rdmad/", "/doc/rdmad-rdma/")
			}
			more = append(more, "/usr/lib/udev/rules.d/40-rdmad.rules")
			expected = []string{"Conflicts: rdmad\n", "Provides: rdmad (= 0.0.1-1)\n", "libibverbs1, librdmacm1", "libc6 (>= 2."}
		}
		checkContents(t, file, names, more)
		for _, e := range expected {
			if !strings.Contains(fields, e) {
				t.Errorf("%s: no %q in\n%s", file, e, fields)
			}
		}
		if conf := tool(t, "dpkg-deb", "-I", file, "conffiles"); strings.TrimSpace(conf) != "/etc/rdmad/config.toml" {
			t.Errorf("%s: conffiles %q", file, conf)
		}
	}
}

// tool runs a tool of packages and returns what it prints.
func tool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := output(t.Context(), ".", nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out + "\n"
}

// What an rpm has is told by rpm, which is installed where that can be done.
func TestRPMContents(t *testing.T) {
	if _, err := exec.LookPath("rpm"); err != nil {
		if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
			t.Skip("rpm is not installed; on Debian: apt-get install rpm")
		}
		if out, err := install("rpm"); err != nil {
			t.Skipf("apt-get install rpm: %v\n%s", err, out)
		}
	}
	for _, file := range built(t).files {
		if filepath.Ext(file) != ".rpm" {
			continue
		}
		tool(t, "rpm", "-K", "--nosignature", file)
		rdma := strings.Contains(file, "-rdma-")
		name, other := "rdmad", "rdmad-rdma"
		if rdma {
			name, other = other, name
		}
		checkContents(t, file, strings.Fields(tool(t, "rpm", "-qpl", file)), []string{"/usr/share/zsh/site-functions/_rdmad", "/usr/share/licenses/" + name + "/LICENSE"})
		if got := strings.TrimSpace(tool(t, "rpm", "-qp", "--conflicts", file)); got != other {
			t.Errorf("%s: conflicts with %q", file, got)
		}
		if got := tool(t, "rpm", "-qp", "--configfiles", file); got != "/etc/rdmad/config.toml\n" {
			t.Errorf("%s: configuration %q", file, got)
		}
		requires, provides := tool(t, "rpm", "-qp", "--requires", file), tool(t, "rpm", "-qp", "--provides", file)
		if strings.Contains(requires, "libibverbs.so.1()(64bit)\nlibrdmacm.so.1()(64bit)\n") != rdma || !strings.Contains(provides, "rdmad = 0.0.1-1\n") {
			t.Errorf("%s: requires\n%sprovides\n%s", file, requires, provides)
		}
		for _, script := range []string{"POSTIN", "PREUN", "POSTUN"} {
			c := exec.Command("sh", "-n")
			c.Stdin = strings.NewReader(tool(t, "rpm", "-qp", "--qf", "%{"+script+"}", file))
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s of %s: %v\n%s", script, file, err, out)
			}
		}
	}
}

// tolerated is what lintian may say, and why it is so.
var tolerated = map[string]string{
	"statically-linked-binary":          "rdmad without RDMA is pure Go, and needs nothing that a library could improve",
	"hardening-no-pie":                  "figures in docs/performance.md are of programs at a fixed address",
	"initial-upload-closes-no-bugs":     "it is not a package of Debian's own",
	"maintainer-script-calls-systemctl": "the same scripts serve rpm, where there is no deb-systemd-invoke",
}

var lintianTag = regexp.MustCompile(`(?m)^[EW]: [a-z-]+: ([a-z-]+).*$`)

func TestLintian(t *testing.T) {
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Skip("lintian is not installed: apt-get install lintian")
	}
	for _, file := range built(t).files {
		if filepath.Ext(file) != ".deb" {
			continue
		}
		// It ends with 2 if there is an error, which may be one of those that are tolerated.
		out, err := exec.CommandContext(t.Context(), "lintian", "--allow-root", file).CombinedOutput()
		if _, exited := err.(*exec.ExitError); err != nil && !exited {
			t.Fatal(err)
		}
		for _, m := range lintianTag.FindAllStringSubmatch(string(out), -1) {
			if tolerated[m[1]] == "" {
				t.Errorf("%s: %s", filepath.Base(file), m[0])
			}
		}
	}
}

func TestPackagedConfig(t *testing.T) {
	text, err := os.ReadFile("../config.toml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := packagedConfig(string(text))
	if err != nil || !strings.Contains(config, "groups = [\"rdmad\"]\n") || len(config) != len(text)+len(`"root"`)+len(`"rdmad"`) {
		t.Errorf("%v\n%s", err, config)
	}
	if _, err := packagedConfig("users = []\n"); err == nil {
		t.Error("accepted an example without a domain")
	}
}

// Bad input is one line, and nothing is half written.
func TestBuildRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := build(t.Context(), options{repository: "..", out: dir}.quiet(t)); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Error(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if _, err := build(t.Context(), options{repository: t.TempDir(), out: dir}.quiet(t)); err == nil {
		t.Error("built a package of nothing")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s was made", dir)
	}
}

// The program in a package says which version it is of, and of which commit: the linker ignores a name that is not there.
func TestProgramSaysItsVersion(t *testing.T) {
	s, err := identify(t.Context(), options{repository: "..", version: "7.8.9", revision: "abcdef0"})
	if err != nil {
		t.Fatal(err)
	}
	s.staged = t.TempDir()
	if err := s.program(t.Context(), variants[0]); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(s.staged, variants[0].name), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "rdmad 7.8.9 (revision abcdef0,") {
		t.Errorf("%v: %s", err, out)
	}
}
