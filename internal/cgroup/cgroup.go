// Package cgroup reads what the control groups of a process, those of version 2, let it
// have. Paths are below a root, as fs.FS has them, so that tests can make their own.
package cgroup

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
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
			// Clean keeps a strange path below the mount.
			for at := path.Clean("/" + own); ; at = path.Dir(at) {
				dirs = append(dirs, path.Join(mount, at))
				if at == "/" {
					break
				}
			}
		}
		return dirs
	}
	return nil
}

// Limit returns the smallest limit that a file such as memory.max states in one of the
// directories, and its path; Unlimited and "" if none does.
func Limit(root fs.FS, dirs []string, file string) (least uint64, where string) {
	least = Unlimited
	for _, dir := range dirs {
		text, err := fs.ReadFile(root, path.Join(dir, file))
		if err != nil {
			continue // the root has none, nor has one without the controller
		}
		if n, ok := value(strings.TrimSpace(string(text))); ok && n < least {
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
		text, err := fs.ReadFile(root, path.Join(dir, "rdma.max"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
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

// Processors returns how much processor time per time the directories allow: 1.5 is one
// processor and a half. +Inf: they do not limit it. A line of cpu.max is "150000 100000":
// microseconds in each period of so many, or "max" of them.
func Processors(root fs.FS, dirs []string) float64 {
	least := math.Inf(1)
	for _, dir := range dirs {
		text, err := fs.ReadFile(root, path.Join(dir, "cpu.max"))
		if err != nil {
			continue
		}
		f := strings.Fields(string(text))
		if len(f) != 2 {
			continue
		}
		quota, ok := value(f[0])
		period, known := value(f[1])
		if ok && known && quota != Unlimited && period > 0 && period != Unlimited {
			least = min(least, float64(quota)/float64(period))
		}
	}
	return least
}

// Usable is how many processors this process may use, by its affinity when it started and by the limits of its
// control groups as they are now.
func Usable() float64 {
	root := os.DirFS("/")
	return min(float64(runtime.NumCPU()), Processors(root, Dirs(root, "proc/self")))
}

// Spares reports whether a thread of this process may poll for what another processor does meanwhile: within a limit of
// less than two processors that would use up the time that is for work.
func Spares() bool { return Usable() >= 2 }

func value(s string) (n uint64, ok bool) {
	if s == "max" {
		return Unlimited, true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}
