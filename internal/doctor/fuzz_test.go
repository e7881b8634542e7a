package doctor

import (
	"testing"

	"github.com/rdmad/rdmad/shm"
)

// Whatever the files of the kernel hold, every check comes to an end with findings
// that can be printed.
func FuzzFiles(f *testing.F) {
	f.Add("Max locked memory 1 2 bytes\n", "0::/a/b\n", "17\n", "mlx5_0 hca_object=3\n", "Hugepagesize: 2048 kB\n", "CapEff: 4000\n")
	f.Add("", "0::/", "max", "mlx5_0", "HugePages_Free: 18446744073709551615\nHugepagesize: 18446744073709551615", "CapEff:")
	f.Fuzz(func(t *testing.T, limits, cgroup, limit, objects, meminfo, status string) {
		m := healthy(t)
		m.Config.Memory.Hugepages = shm.HugepagesTry
		m.put("proc/self/limits", limits)
		m.put("proc/self/cgroup", cgroup)
		m.put("proc/self/status", status)
		m.put("proc/self/uid_map", "0 0 4294967295\n")
		m.put("proc/meminfo", meminfo)
		m.put("sys/fs/cgroup/cgroup.controllers", "")
		for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/a/", "sys/fs/cgroup/a/b/"} {
			m.put(dir+"memory.max", limit)
			m.put(dir+"pids.max", limit)
			m.put(dir+"rdma.max", objects)
		}
		found := Run(t.Context(), m.Env)
		if len(found) < 10 || Text(found) == "" {
			t.Errorf("%d findings", len(found))
		}
	})
}
