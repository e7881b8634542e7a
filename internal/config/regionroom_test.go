package config

import (
	"strings"
	"testing"
)

// What there is least of is the bound, and is named.
func TestRoomForRegions(t *testing.T) {
	for _, c := range []struct {
		maps, files uint64
		domains     int
		share       int
		limit       string
	}{
		{DefaultMaps, 1 << 20, 1, DefaultMaps / 2, "vm.max_map_count = 65530"},
		{DefaultMaps, 1 << 20, 8, DefaultMaps / 16, "sysctl"},
		{DefaultMaps, 1024, 1, 512, "1024 files that a process may open: raise LimitNOFILE"},
		{1 << 40, 1 << 63, 2, MaxKept / 4, "kept for the next core"},
		{2, 1 << 20, 8, 1, "vm.max_map_count"},
		{0, 0, 0, 1, "files"},
	} {
		r := RoomForRegions(c.maps, c.files)
		if got := r.Share(c.domains); got != c.share || !strings.Contains(r.Limit, c.limit) || r.Maps < 0 {
			t.Errorf("%+v: %d of %+v", c, got, r)
		}
	}
}
