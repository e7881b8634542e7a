package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// chrootLimit bounds each step with a small Debian.
const chrootLimit = 5 * time.Minute

// A .deb is installed, run, upgraded, exchanged for the other one, removed and purged in a
// minimal Debian without systemd. It needs root, Debian and debootstrap, which it
// installs.
func TestDebInChroot(t *testing.T) {
	if why := noChroot(); why != "" {
		t.Skip(why)
	}
	old := built(t)
	next := filepath.Join(t.TempDir(), "next")
	if _, err := build(t.Context(), options{repository: "..", out: next, version: old.version + "+next", only: "rdmad"}.quiet(t)); err != nil {
		t.Fatal(err)
	}
	root := newRoot(t)
	into := filepath.Join(root, "packages")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, pattern := range map[string]string{
		"old.deb": old.dir + "/rdmad_*.deb", "new.deb": next + "/rdmad_*.deb", "rdma.deb": old.dir + "/rdmad-rdma_*.deb",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) > 1 || len(found) == 0 && name != "rdma.deb" {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		for _, file := range found {
			if err := os.Link(file, filepath.Join(into, name)); err != nil {
				copyFile(t, file, filepath.Join(into, name))
			}
		}
		if len(found) == 0 {
			t.Log("rdmad-rdma was not built here and is not tested")
		}
	}
	script, err := filepath.Abs("chroot.sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := namespaced(t.Context(), "/bin/sh", script, root)
	if err != nil || !strings.HasSuffix(out, "== nothing is left over\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), root) {
		t.Errorf("%v, or something is still mounted in %s", err, root)
	}
}

// namespaced runs a command in mount and pid namespaces of its own: its processes end and
// its mounts go when it ends, or is killed.
func namespaced(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, chrootLimit)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	c.WaitDelay = time.Minute
	out, err := c.CombinedOutput()
	return string(out), err
}

// noChroot says why there can be no small Debian here, or nothing; it installs
// debootstrap if that is missing.
func noChroot() string {
	if os.Geteuid() != 0 {
		return "a chroot needs root: run this as root on Debian"
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		return "no dpkg here: run this on Debian, or in a container of it"
	}
	if err := syscall.Unshare(0); err != nil {
		return fmt.Sprintf("no namespaces here: %v", err)
	}
	if _, err := namespaced(context.Background(), "true"); err != nil {
		return fmt.Sprintf("no mount and pid namespaces here (%v): run this in a privileged container, or in none", err)
	}
	if _, err := exec.LookPath("debootstrap"); err == nil {
		return ""
	}
	if out, err := install("debootstrap"); err != nil {
		return fmt.Sprintf("debootstrap is missing, and apt-get install debootstrap failed: %v %s", err, out)
	}
	return ""
}

// Another apt-get may be fetching the lists, for which apt-get update does not wait: it is
// tried again for updateLimit. apt-get install waits, by DPkg::Lock::Timeout.
const (
	updateLimit = 3 * time.Minute
	updatePause = 5 * time.Second
)

// install installs Debian packages.
func install(names ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), updateLimit+chrootLimit)
	defer cancel()
	aptGet := func(args ...string) (string, error) {
		c := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := aptGet("update")
	for begin := time.Now(); err != nil && time.Since(begin) < updateLimit; out, err = aptGet("update") {
		time.Sleep(updatePause)
	}
	if err != nil {
		return out, err
	}
	return aptGet(append([]string{"install", "-y", "--no-install-recommends"}, names...)...)
}

// newRoot unpacks a minimal Debian, which is made once for a user and kept in the user's
// cache.
func newRoot(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(cache, "rdmad", "debian-"+suite+".tar.gz")
	if _, err := os.Stat(archive); err != nil {
		makeRoot(t, archive)
	}
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", root, "-xpzf", archive, "--numeric-owner").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", archive, err, out)
	}
	return root
}

// suite is the Debian that packages are tried in, and libraries what rdmad-rdma needs.
const (
	suite     = "bookworm"
	libraries = "libibverbs1,librdmacm1,ibverbs-providers"
)

// makeRoot makes the archive of a minimal Debian. Without a network the test is skipped.
func makeRoot(t *testing.T, archive string) {
	t.Helper()
	dir := t.TempDir()
	begin := time.Now()
	out, err := namespaced(t.Context(), "debootstrap", "--variant=minbase", "--include="+libraries, suite, filepath.Join(dir, "root"))
	if err != nil {
		t.Skipf("debootstrap %s: %v\n%s", suite, err, out)
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		t.Fatal(err)
	}
	// Another test may make it at the same time.
	part := fmt.Sprintf("%s.%d", archive, os.Getpid())
	defer os.Remove(part)
	out, err = namespaced(t.Context(), "tar", "-C", filepath.Join(dir, "root"), "--exclude=./var/cache/apt/archives/*.deb", "--exclude=./var/lib/apt/lists/*",
		"--use-compress-program=gzip -1", "--numeric-owner", "-cf", part, ".")
	if err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	if err := os.Rename(part, archive); err != nil {
		t.Fatal(err)
	}
	t.Logf("made %s in %s", archive, time.Since(begin).Round(time.Second))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
