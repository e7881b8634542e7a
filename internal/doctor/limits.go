package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/rdmad/rdmad/internal/cgroup"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/rdmasys"
)

// checkCgroup: the limits of the control group leave room for the plan.
func checkCgroup(_ context.Context, e *Env) []Finding {
	const name = "cgroup"
	process, who, err := e.process()
	if err != nil {
		return good(name, "what limits %s is not checked: %v", who, err) // checkFiles warns
	}
	dirs := cgroup.Dirs(e.Root, process)
	if len(dirs) == 0 {
		return good(name, "no control group of version 2 limits %s", who)
	}
	p := planOf(e.Config)
	var found []Finding
	switch n, where := cgroup.Limit(e.Root, dirs, "memory.max"); {
	case n < p.segments:
		found = append(found, one(Fail, name,
			"raise it (systemd: MemoryMax=, docker: --memory), or have fewer or smaller slots in [[class]]",
			"lanes can take %s of shared memory, %s is %s: %s would refuse some", bytesText(p.segments), where, bytesText(n), who)...)
	case n-p.segments < config.LeftByRegions:
		found = append(found, one(Warn, name,
			"raise it (systemd: MemoryMax=, docker: --memory), or have fewer or smaller slots in [[class]]",
			"lanes can take %s of shared memory, %s is %s: beside them %s has no room for regions, and lanes leave it %s", bytesText(p.segments), where, bytesText(n), who, bytesText(config.LeftByLanes))...)
	}
	if n, where := cgroup.Limit(e.Root, dirs, "pids.max"); n < uint64(p.threads) {
		found = append(found, one(Warn, name,
			"raise it (systemd: TasksMax=, docker: --pids-limit), or lower agent.count",
			"the core may need %d threads, %s is %d", p.threads, where, n)...)
	}
	found = append(found, e.checkObjects(dirs, p)...)
	if len(found) == 0 {
		found = good(name, "has room for the %s of shared memory and the %d threads of %s", bytesText(p.segments), p.threads, who)
	}
	return found
}

// checkObjects: the rdma controller leaves room for the objects of the device.
func (e *Env) checkObjects(dirs []string, p plan) []Finding {
	if !e.wantsRDMA() {
		return nil
	}
	device, _, err := rdmasys.Choose(e.Devices, e.Config.Verbs.Device, e.Config.Verbs.Port, e.Config.Verbs.GIDIndex)
	if err != nil {
		return nil // checkPort says so
	}
	n, where := cgroup.Objects(e.Root, dirs, device.Name)
	if n >= uint64(p.objects) {
		return nil
	}
	return one(e.severity(), "cgroup", fmt.Sprintf("raise it: echo '%s hca_object=max' > %s", device.Name, where),
		"lanes can take %d objects of %s, %s allows %d", p.objects, device.Name, where, n)
}

// checkFiles: there are enough descriptors for lanes and workers.
func checkFiles(_ context.Context, e *Env) []Finding {
	const name = "files"
	l, who, err := e.limitOf("Max open files")
	if err != nil {
		return one(Warn, name, notVisible, "the limit of %s is not known: %v", who, err)
	}
	p := planOf(e.Config)
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) }
	text := fmt.Sprintf("%d are enough for all lanes and for limits.workers = %d processes in %s; RLIMIT_NOFILE of %s is %s",
		p.files, e.Config.Limits.Workers, plural(p.domains, "domain"), who, limitText(l.soft, decimal))
	if l.soft < uint64(p.files) {
		return one(Warn, name, fmt.Sprintf("raise it (systemd: LimitNOFILE=%d, docker: --ulimit nofile=%d), or lower limits.workers", p.files, p.files), "%s", text)
	}
	return good(name, "%s", text)
}

// checkRegions: each domain has room for as many regions as one process may have.
func checkRegions(_ context.Context, e *Env) []Finding {
	const name = "regions"
	maps, files := uint64(config.DefaultMaps), uint64(unlimited)
	if text, err := fs.ReadFile(e.Root, "proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			maps = n
		}
	}
	if l, _, err := e.limitOf("Max open files"); err == nil { // else checkFiles says so
		files = l.soft
	}
	room, domains, each := config.RoomForRegions(maps, files), len(e.Config.Domains), e.Config.Limits.RegionCount
	share := room.Share(domains)
	text := fmt.Sprintf("the processes of %s may have %d regions together, and one process limits.region_count = %d", eachOf(domains), share, each)
	if share < each {
		return one(Warn, name, "make room, or lower limits.region_count: "+room.Limit, "%s", text)
	}
	return good(name, "%s (%s)", text, room.Limit)
}

// eachOf names the domain, or each of them.
func eachOf(domains int) string {
	if domains == 1 {
		return "the domain"
	}
	return fmt.Sprintf("each of %d domains", domains)
}
