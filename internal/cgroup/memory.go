package cgroup

import (
	"io/fs"
	"math/bits"
	"strings"
)

// Memory returns how many bytes more the cgroups of a process, given as for Dirs, and the machine let it have before the
// kernel must kill somebody, and the file that says so; Unlimited and "" if none does. Pages of files that are cached, and what the kernel remembers of files, count as
// free, because the kernel takes them back before; those of memfds do not, which it counts as no pages of files.
//
// It says nothing about huge pages, which are set aside.
func Memory(root fs.FS, process string) (least uint64, where string) {
	least = Unlimited
	look := func(n uint64, file string) {
		if n < least {
			least, where = n, "/"+file
		}
	}
	for _, dir := range Dirs(root, process) {
		limit, ok := value(read(root, dir, "memory.max"))
		used, known := value(read(root, dir, "memory.current"))
		if ok && known && limit != Unlimited {
			look(left(limit, used, cached(read(root, dir, "memory.stat"), "")), dir+"/memory.max")
		}
	}
	for _, dir := range oldDirs(root, process, "memory") {
		limit, ok := value(read(root, dir, "memory.limit_in_bytes")) // without one it is more than anybody has
		used, known := value(read(root, dir, "memory.usage_in_bytes"))
		if ok && known {
			look(left(limit, used, cached(read(root, dir, "memory.stat"), "total_")), dir+"/memory.limit_in_bytes")
		}
	}
	for line := range strings.Lines(read(root, "proc", "meminfo")) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" {
			if n, ok := value(f[1]); ok && n < Unlimited>>10 {
				look(n<<10, "proc/meminfo (MemAvailable)")
			}
		}
	}
	return least, where
}

// left returns what is left of a limit where so much is in use, and so much of that can be taken back.
func left(limit, used, cached uint64) uint64 {
	used -= min(used, cached)
	return limit - min(limit, used)
}

// cached returns how much of a memory.stat is taken back before anybody is killed: pages of files, by names that may have a prefix, and
// what the kernel remembers of files (of version 2 only, which counts it as in use).
func cached(stat, prefix string) (n uint64) {
	for line := range strings.Lines(stat) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] != prefix+"inactive_file" && f[0] != prefix+"active_file" && f[0] != "slab_reclaimable" {
			continue
		}
		if some, ok := value(f[1]); ok && some < Unlimited-n {
			n += some
		}
	}
	return n
}

// HugePages returns how many bytes there are in huge pages of the default size that nobody has or has reserved, and the file that
// says so; none if the kernel has no such pages.
func HugePages(root fs.FS) (bytes uint64, where string) {
	m := make(map[string]uint64)
	for line := range strings.Lines(read(root, "proc", "meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 {
			if n, ok := value(f[1]); ok {
				m[f[0]] = n
			}
		}
	}
	free := m["HugePages_Free:"] - min(m["HugePages_Free:"], m["HugePages_Rsvd:"])
	high, bytes := bits.Mul64(free, m["Hugepagesize:"]<<10)
	if high > 0 {
		bytes = Unlimited
	}
	return bytes, "/proc/meminfo (HugePages_Free)"
}
