// Package cgroup reads what the control groups of a process let it have: those of version 2, and
// for processor time and memory those of version 1, too. Paths are below a root, as fs.FS has them, so that tests can make their own.
package cgroup

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Unlimited is the limit that is none.
const Unlimited = math.MaxUint64

// mounts are where cgroups of version 2 are mounted, alone or beside those of version 1.
var mounts = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}

// Dirs returns the directories of the cgroup of a process, given as "proc/self" or
// "proc/PID", and of all above it, whose limits all count; none if there is no such thing.
func Dirs(root fs.FS, process string) []string {
	text, err := fs.ReadFile(root, process+"/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ok {
			continue
		}
		var dirs []string
		for _, mount := range mounts {
			if _, err := fs.Stat(root, mount+"/cgroup.controllers"); err != nil {
				continue
			}
			dirs = append(dirs, lineage(mount, own)...)
		}
		return dirs
	}
	return nil
}

// lineage returns the directories of a cgroup and of all above it. A container may see the path of its host's, but
// the mount is its own then.
func lineage(mount, own string) (dirs []string) {
	// Clean keeps a strange path below the mount.
	for at := path.Clean("/" + own); ; at = path.Dir(at) {
		dirs = append(dirs, path.Join(mount, at))
		if at == "/" {
			return dirs
		}
	}
}

// oldDirs is Dirs for the cgroup of version 1 that has a controller, which may have several: then the mount is
// named after all of them, and after each by a link.
func oldDirs(root fs.FS, process, controller string) []string {
	text, err := fs.ReadFile(root, process+"/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // 3:cpu,cpuacct:/path
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return lineage(path.Join(mounts[0], controller), f[2])
		}
	}
	return nil
}

// Limit returns the smallest limit that a file such as memory.max states in one of the
// directories, and its path; Unlimited and "" if none does.
func Limit(root fs.FS, dirs []string, file string) (least uint64, where string) {
	least = Unlimited
	for _, dir := range dirs {
		// The root has none, nor has one without the controller.
		if n, ok := value(read(root, dir, file)); ok && n < least {
			least, where = n, "/"+path.Join(dir, file)
		}
	}
	return least, where
}

// Objects is Limit for the objects of an RDMA device, of which rdma.max has a line per
// device: "mlx5_0 hca_handle=2 hca_object=2000".
func Objects(root fs.FS, dirs []string, device string) (least uint64, where string) {
	least = Unlimited
	for _, dir := range dirs {
		for line := range strings.Lines(read(root, dir, "rdma.max")) {
			f := strings.Fields(line)
			if len(f) == 0 || f[0] != device {
				continue
			}
			for _, word := range f[1:] {
				text, ok := strings.CutPrefix(word, "hca_object=")
				if n, valid := value(text); ok && valid && n < least {
					least, where = n, "/"+path.Join(dir, "rdma.max")
				}
			}
		}
	}
	return least, where
}

// Processors returns how much processor time per time the cgroups of a process allow, given as for Dirs: 1.5 is one
// processor and a half. +Inf: they do not limit it.
func Processors(root fs.FS, process string) float64 {
	least := math.Inf(1)
	for _, dir := range Dirs(root, process) {
		// "150000 100000": microseconds in each period of so many, or "max" of them.
		if f := strings.Fields(read(root, dir, "cpu.max")); len(f) == 2 {
			least = min(least, share(f[0], f[1]))
		}
	}
	for _, dir := range oldDirs(root, process, "cpu") {
		// The same in two files; a quota of -1 is none.
		least = min(least, share(read(root, dir, "cpu.cfs_quota_us"), read(root, dir, "cpu.cfs_period_us")))
	}
	return least
}

// read returns what a file of a cgroup says; "" if there is none.
func read(root fs.FS, dir, file string) string {
	text, err := fs.ReadFile(root, path.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// share returns how many processors a quota of each period is; +Inf for what is no limit.
func share(quota, period string) float64 {
	q, ok := value(quota)
	p, known := value(period)
	if !ok || !known || q == Unlimited || p == 0 || p == Unlimited {
		return math.Inf(1)
	}
	return float64(q) / float64(p)
}

// Usable is how many processors this process may use, by its affinity when it started, and how much processor time
// per time the limits of its control groups let it have as they are now, as Processors.
func Usable() (processors int, time float64) {
	return runtime.NumCPU(), Processors(os.DirFS("/"), "proc/self")
}

// Spares reports whether a thread of this process may poll for what another processor does meanwhile: there must be another
// one. Within a limit of processor time polling for a moment costs less than to be woken on another processor, unless
// the limit is less than one processor: then it uses up what is for work (docs/decisions/0035-callers-poll.md).
func Spares() bool {
	processors, time := Usable()
	return processors >= 2 && time >= 1
}

func value(s string) (n uint64, ok bool) {
	if s == "max" {
		return Unlimited, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}
