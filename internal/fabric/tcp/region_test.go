package tcp

import (
	"runtime"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Processes may have tens of thousands of regions, and the end of a connection closes them on the thread of an
// agent: one more, or one less, must not cost a look at all the others.
func TestRegistrationsCostTheSame(t *testing.T) {
	d, err := New(Config{}).Open(fabric.Options{})
	must(t, err)
	defer d.Close()
	pd, err := d.AllocPD()
	must(t, err)
	mem := make([]byte, 64)
	register := func(n int) (rs []fabric.MemoryRegion) {
		for range n {
			r, err := pd.Register(mem, fabric.AccessRemoteRead)
			must(t, err)
			rs = append(rs, r)
		}
		return rs
	}
	many := register(20_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, r := range register(100) {
		must(t, r.Close())
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 { // the map may grow once
		t.Errorf("100 registrations beside 20,000 allocate %d bytes", n)
	}
	for _, r := range many {
		must(t, r.Close())
	}
	must(t, pd.Close())
}
