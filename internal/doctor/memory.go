package doctor

import (
	"context"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/shm"
)

// checkMemlock: the fabric may lock as much memory as the plan needs.
func checkMemlock(_ context.Context, e *Env) []Finding {
	const name = "memlock"
	if !e.locksMemory() {
		return good(name, "fabric.provider = %q locks no memory", e.Config.Fabric.Provider)
	}
	p := planOf(e.Config)
	need := fmt.Sprintf("slots and queues of %s need %s", p, bytesText(p.pinned))
	l, who, err := e.limitOf("Max locked memory")
	if err != nil {
		return one(Warn, name, notVisible, "%s; the limit of %s is not known: %v", need, who, err)
	}
	text := fmt.Sprintf("%s; RLIMIT_MEMLOCK of %s is %s (hard limit %s)", need, who, limitText(l.soft, bytesText), limitText(l.hard, bytesText))
	switch {
	case l.soft >= p.pinned:
		return good(name, "%s", text)
	case e.mayLock():
		return good(name, "%s, which its CAP_IPC_LOCK lifts", text)
	}
	return one(e.severity(), name,
		"systemd: LimitMEMLOCK=infinity in the daemon's unit; docker: --ulimit memlock=-1; shell: ulimit -l unlimited as root (limits.conf is for logins only)", "%s", text)
}

// locksMemory reports whether the fabric locks the slots of lanes.
func (e *Env) locksMemory() bool {
	return e.wantsRDMA() || e.Config.Fabric.Provider == libfabric.Name && libfabric.LocksMemory(e.Config.Libfabric.Provider)
}

// checkHugepages: there are as many free huge pages as the plan needs.
func checkHugepages(_ context.Context, e *Env) []Finding {
	const name = "hugepages"
	level, mode := Warn, "try"
	switch e.Config.Memory.Hugepages {
	case shm.HugepagesOff:
		return good(name, `memory.hugepages = "off"`)
	case shm.HugepagesRequire:
		level, mode = Fail, "require"
	}
	m, err := e.meminfo()
	if err != nil {
		return one(Warn, name, "run this where /proc is mounted", "memory.hugepages = %q: %v", mode, err)
	}
	if size := m["Hugepagesize"] << 10; size != hugepage {
		return one(level, name, `boot with default_hugepagesz=2M, or set memory.hugepages = "off"`,
			"memory.hugepages = %q needs huge pages of %s by default, here they are of %s", mode, bytesText(hugepage), bytesText(size))
	}
	p := planOf(e.Config)
	need, used := p.hugepages, e.hugepagesUsed()
	need -= min(need, used)
	free := m["HugePages_Free"] - min(m["HugePages_Free"], m["HugePages_Rsvd"])
	text := fmt.Sprintf("memory.hugepages = %q: lanes can take %d more pages of %s, which is %s; %d of %d are free",
		mode, need, bytesText(hugepage), bytesText(need*hugepage), free, m["HugePages_Total"])
	if free < need {
		return one(level, name, fmt.Sprintf("sysctl vm.nr_hugepages=%d", m["HugePages_Total"]+need-free), "%s", text)
	}
	return good(name, "%s", text)
}

// hugepagesUsed is how many pages the lanes of the running daemon have already. If
// it could not get them all this is too many, and the status does not tell.
func (e *Env) hugepagesUsed() (n uint64) {
	if e.Daemon == nil {
		return 0
	}
	for _, l := range e.Daemon.Lanes {
		n += pagesOf(segmentSize(l.SlotSize, l.Slots))
	}
	return n
}
