package cgroup

import (
	"maps"
	"testing"
)

// What is left of the least limit above a process counts, or what the machine has if that is less. What cannot be read bounds nothing.
func TestMemory(t *testing.T) {
	const v2, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	files := map[string]string{"proc/self/cgroup": "4:memory:/old\n0::/a/b\n", v2 + "cgroup.controllers": "memory\n"}
	expect := func(what string, n uint64, where string) {
		t.Helper()
		if got, file := Memory(machine(files), "proc/self"); got != n || file != where {
			t.Errorf("%s: %d by %q, want %d by %q", what, got, file, n, where)
		}
	}
	expect("nothing is known", Unlimited, "")
	maps.Copy(files, map[string]string{
		v2 + "a/b/memory.max": "max\n", v2 + "a/b/memory.current": "100\n", v2 + "a/memory.max": "1000\n", v2 + "memory.max": "what\n",
	})
	expect("nobody says what is in use", Unlimited, "")
	files[v2+"a/memory.current"] = "700\n"
	expect("a limit above", 300, "/"+v2+"a/memory.max")
	files[v2+"a/memory.stat"] = "anon 5\nfile 600\nshmem 500\ninactive_file 20\nactive_file 30\nunevictable 7\nslab x\nslab_reclaimable 5\n"
	expect("with cached pages of files", 355, "/"+v2+"a/memory.max")
	files[v2+"a/b/memory.max"] = "100\n"
	expect("nothing is left", 0, "/"+v2+"a/b/memory.max")
	files[v2+"a/b/memory.current"] = "170\n"
	expect("less than nothing is left", 0, "/"+v2+"a/b/memory.max")
	files[v2+"a/b/memory.stat"] = "inactive_file 900\n"
	expect("all of it can be taken back", 100, "/"+v2+"a/b/memory.max")
	files[v2+"a/b/memory.max"] = "max\n"

	maps.Copy(files, map[string]string{
		v1 + "memory.limit_in_bytes": "9223372036854771712\n", v1 + "memory.usage_in_bytes": "1\n",
		v1 + "old/memory.limit_in_bytes": "200\n", v1 + "old/memory.usage_in_bytes": "90\n",
		v1 + "old/memory.stat": "inactive_file 1\ntotal_inactive_file 5\ntotal_active_file 6\n",
	})
	expect("of version 1", 121, "/"+v1+"old/memory.limit_in_bytes")
	files["proc/meminfo"] = "MemTotal: 1 kB\nMemAvailable: 1 kB\n"
	expect("the machine has more", 121, "/"+v1+"old/memory.limit_in_bytes")
	files[v1+"old/memory.usage_in_bytes"], files[v2+"a/memory.current"] = "0", "0"
	files["proc/meminfo"] = "MemTotal: 1 kB\nMemAvailable: 0 kB\n"
	expect("the machine has less", 0, "/proc/meminfo (MemAvailable)")
	files["proc/meminfo"] = "MemAvailable: 99999999999999999999 kB\nMemAvailable: 18446744073709551615 kB\nMemAvailable:\n"
	expect("the machine says nonsense", 200, "/"+v1+"old/memory.limit_in_bytes")
}

func TestHugePages(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0,
		"HugePages_Free: 5\nHugePages_Rsvd: 2\nHugepagesize: 2048 kB\n":                  3 * (2 << 20),
		"HugePages_Free: 5\nHugePages_Rsvd: 7\nHugepagesize: 2048 kB\n":                  0,
		"HugePages_Free: x\nHugepagesize: 2048 kB\n":                                     0,
		"HugePages_Free: 18446744073709551615\nHugepagesize: 18446744073709551615 kB\nx": Unlimited,
	} {
		if got, where := HugePages(machine(map[string]string{"proc/meminfo": text})); got != want || where == "" {
			t.Errorf("%q: %d by %q, want %d", text, got, where, want)
		}
	}
}
