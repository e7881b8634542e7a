package config

import "fmt"

// MaxKept bounds what the supervisor keeps for the next core: workers, methods, lanes and regions of all domains.
const MaxKept = 1 << 18

// DefaultMaps is vm.max_map_count where nobody has changed it, for who cannot read it.
const DefaultMaps = 65530

// The bytes of memory that segments leave of what control groups and the machine have: the core itself grows, and takes more for each
// process that attaches and each connection. Lanes, and answers that are moved out of them, may have what regions, of which a process
// can make many, must leave.
const (
	LeftByRegions = 64 << 20
	LeftByLanes   = 32 << 20
)

// RegionRoom is how many regions the processes of a node may have together.
//
// Each is a mapping of the core, and a descriptor and an item of what is kept for the next one. A core that has as many
// mappings as the kernel lets it have (vm.max_map_count) can map nothing any more, for whatever domain, nor can the Go
// runtime; and since regions are kept, nor can any core after it. So regions may be half of each, and the rest is for all else.
type RegionRoom struct {
	Most int
	// Limit is what that is half of, and how there is more of it.
	Limit string
	// Maps are the mappings that a process may have.
	Maps int
}

// RoomForRegions returns the room where a process may have so many mappings and open so many files.
func RoomForRegions(maps, files uint64) RegionRoom {
	r := RegionRoom{Most: MaxKept / 2, Limit: fmt.Sprintf("half of the %d things that are kept for the next core", MaxKept), Maps: int(min(maps, 1<<31-1))}
	if files/2 < uint64(r.Most) {
		r.Most, r.Limit = int(files/2), fmt.Sprintf("half of the %d files that a process may open: raise LimitNOFILE of the daemon's service", files)
	}
	if maps/2 < uint64(r.Most) {
		r.Most, r.Limit = int(maps/2), fmt.Sprintf("half of vm.max_map_count = %d: raise it by sysctl and start another core by rdmad upgrade", maps)
	}
	return r
}

// Share is how many of them the processes of one domain may have where there are so many domains: what is left of it is
// nobody else's, so that no domain can take the room of another.
func (r RegionRoom) Share(domains int) int { return max(1, r.Most/max(1, domains)) }
