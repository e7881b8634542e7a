package cgroup

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/fstest"
)

// machine is a root with the files.
func machine(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

func TestDirs(t *testing.T) {
	const mount = "sys/fs/cgroup"
	for own, want := range map[string][]string{
		"0::/\n":                     {mount},
		"0::/a/b\n":                  {mount + "/a/b", mount + "/a", mount},
		"4:memory:/old\n0::/a\n":     {mount + "/a", mount},
		"0::/../../../proc\n":        {mount + "/proc", mount},
		"4:memory:/only-version-1\n": nil,
		"":                           nil,
	} {
		root := machine(map[string]string{"proc/self/cgroup": own, mount + "/cgroup.controllers": ""})
		if got := Dirs(root, "proc/self"); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", own, got, want)
		}
		delete(root, mount+"/cgroup.controllers")
		if got := Dirs(root, "proc/self"); got != nil {
			t.Errorf("%q without version 2: %q", own, got)
		}
	}
	if got := Dirs(machine(nil), "proc/self"); got != nil {
		t.Errorf("without a file: %q", got)
	}
}

// The smallest limit counts, whichever group above states it.
func TestLimits(t *testing.T) {
	root := machine(map[string]string{
		"g/a/memory.max": "max\n", "g/memory.max": "4096\n",
		"g/a/pids.max": "12\n", "g/pids.max": "many\n",
		"g/a/rdma.max": "mlx5_1 hca_object=1\nmlx5_0 hca_handle=2 hca_object=2000\n", "g/rdma.max": "mlx5_0 hca_handle=2 hca_object=max\n\n",
	})
	dirs := []string{"g/a", "g", "nowhere"}
	for file, want := range map[string]struct {
		n     uint64
		where string
	}{"memory.max": {4096, "/g/memory.max"}, "pids.max": {12, "/g/a/pids.max"}, "no.max": {Unlimited, ""}} {
		if n, where := Limit(root, dirs, file); n != want.n || where != want.where {
			t.Errorf("%s: %d in %q, want %+v", file, n, where, want)
		}
	}
	if n, where := Objects(root, dirs, "mlx5_0"); n != 2000 || where != "/g/a/rdma.max" {
		t.Errorf("objects: %d in %q", n, where)
	}
	if n, where := Objects(root, dirs, "mlx5_9"); n != Unlimited || where != "" {
		t.Errorf("objects of another device: %d in %q", n, where)
	}
}

func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		own, above string
		want       float64
	}{
		{"max 100000\n", "", math.Inf(1)},
		{"150000 100000\n", "max 100000\n", 1.5},
		{"max 100000\n", "25000 50000\n", 0.5},
		{"400000 100000\n", "300000 100000\n", 3},
		{"100000\n", "x y\n", math.Inf(1)},
		{"100000 0\n", "100000 max\n", math.Inf(1)},
	} {
		const mount = "sys/fs/cgroup"
		root := machine(map[string]string{
			"proc/1/cgroup": "0::/g/a\n", mount + "/cgroup.controllers": "cpu",
			mount + "/g/a/cpu.max": c.own, mount + "/g/cpu.max": c.above,
		})
		if got := Processors(root, "proc/1"); got != c.want {
			t.Errorf("%q below %q: %v, want %v", c.own, c.above, got, c.want)
		}
	}
}

// Hosts with version 1 say it in two files, in a hierarchy that may be of several controllers. A container has
// its own group at the mount and the path of the host's.
func TestProcessorsOfVersion1(t *testing.T) {
	const mount = "sys/fs/cgroup/cpu"
	for _, c := range []struct {
		line               string
		own, above, period string
		want               float64
	}{
		{"2:cpu,cpuacct:/g/a\n", "-1", "-1", "100000", math.Inf(1)},
		{"2:cpu,cpuacct:/g/a\n", "150000", "-1", "100000", 1.5},
		{"5:memory:/\n2:cpuacct,cpu:/g/a\n", "-1", "50000", "100000", 0.5},
		{"2:cpu:/docker/1234:5\n", "-1", "75000", "50000", 1.5},
		{"2:cpu:/g/a\n", "100000", "-1", "0", math.Inf(1)},
		{"2:cpuset:/g/a\n", "100000", "100000", "100000", math.Inf(1)},
		{"2:cpu\n", "100000", "100000", "100000", math.Inf(1)},
	} {
		root := machine(map[string]string{
			"proc/1/cgroup":                  c.line,
			mount + "/g/a/cpu.cfs_quota_us":  c.own + "\n",
			mount + "/g/a/cpu.cfs_period_us": c.period + "\n",
			mount + "/cpu.cfs_quota_us":      c.above + "\n",
			mount + "/cpu.cfs_period_us":     c.period + "\n",
		})
		if got := Processors(root, "proc/1"); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A real limit of this process's counts. A group of version 2 with a limit would do as well, but may not be made
// where somebody else keeps the controllers.
func TestUsableUnderQuota(t *testing.T) {
	const mount = "/sys/fs/cgroup/cpu"
	dir, err := os.MkdirTemp(mount, "rdmad-test-")
	if err != nil {
		t.Skipf("needs a control group for processor time of version 1 that this user may make (root, %s): %v", mount, err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte("150000"), 0); err != nil {
		t.Skipf("needs limits of processor time in the kernel (CONFIG_CFS_BANDWIDTH): %v", err)
	}
	// Another process: this one's threads would have to be moved back.
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	pid := strconv.Itoa(child.Process.Pid)
	before := Processors(os.DirFS("/"), "proc/"+pid)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0); err != nil {
		t.Fatal(err)
	}
	if got := Processors(os.DirFS("/"), "proc/"+pid); got != min(1.5, before) {
		t.Errorf("%v processors under a limit of 1.5, %v before", got, before)
	}
}

// This process may use something, and no more than there is.
func TestUsable(t *testing.T) {
	n, time := Usable()
	if n < 1 || n > runtime.NumCPU() || time <= 0 {
		t.Errorf("%d of %d processors, %v of their time", n, runtime.NumCPU(), time)
	}
	if got := Spares(); got != (n > 1 && time >= 1) {
		t.Errorf("with %d processors and %v of their time: %v", n, time, got)
	}
}
