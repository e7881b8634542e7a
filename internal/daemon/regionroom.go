package daemon

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
)

// regionRoom returns how many regions this process and those that keep them for the next one have room for.
var regionRoom = func() config.RegionRoom {
	maps, files := uint64(config.DefaultMaps), unix.Rlimit{Cur: config.MaxKept}
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			maps = n
		}
	}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &files) // cannot fail; if it did, mappings would be the bound
	return config.RoomForRegions(maps, files.Cur)
}

// regionsOf returns how many regions the processes of the named domain have, in memory that it had before, too, and how many
// those of all domains. mu is held.
func (c *conductor) regionsOf(name string) (own, all int) {
	count := func(d *domain) {
		all += d.regions.count
		if d.name == name {
			own += d.regions.count
		}
	}
	for _, d := range c.allDomains() {
		count(d)
	}
	for d := range c.retired {
		count(d)
	}
	return own, all
}

// roomForRegion returns the error that a process of the domain gets whose region would be one too many; mu is held. A core
// may have adopted more than there is room for now.
func (c *conductor) roomForRegion(d *domain) error {
	domains := len(c.cfg.Domains)
	share := c.regionRoom.Share(domains)
	switch own, all := c.regionsOf(d.name); {
	case own >= share:
		return fmt.Errorf("%w: the processes of domain %s have %d regions, of %d that each of %d domains of node %s may have (all %d, which is %s); free some",
			attach.ErrLimit, d.name, own, share, domains, c.node, c.regionRoom.Most, c.regionRoom.Limit)
	case all >= c.regionRoom.Most:
		return fmt.Errorf("%w: the processes of node %s have %d regions, at most %d (%s); free some", attach.ErrLimit, c.node, all, c.regionRoom.Most, c.regionRoom.Limit)
	}
	return nil
}

// roomToAdopt returns an error if another region of the last core would take the mappings that this one needs to go on at all; mu
// is held. Else what processes have they keep, whatever the room for more is.
func (c *conductor) roomToAdopt() error {
	if _, all := c.regionsOf(""); all >= c.regionRoom.Maps/4*3 {
		return fmt.Errorf("%w: it would be one more than %d, of the %d mappings that this process may have (vm.max_map_count)", attach.ErrLimit, all, c.regionRoom.Maps)
	}
	return nil
}
