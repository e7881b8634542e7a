//go:build libfabric && cgo && linux

package libfabric

import (
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
)

func TestConformance(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		fabrictest.RunConformance(t, func() fabric.Provider { return newProvider(t, cfg) })
	})
}

// likeEFA are the demands of efa: everything that one may ask of memory, nothing taken with an
// operation, a queue for what concerns none, no descriptors to wait for, and 4 bytes of data with a write.
func likeEFA(cfg Config) *demands {
	m := demands{mrMode: mrModesOK, data: 4, plain: true, hears: true, blind: true}
	if cfg.Provider != shmProvider {
		// Others do not do what they have not asked for, or the layer above them does not.
		m.mrMode = mrLocal | mrAllocated
	}
	return &m
}

// The suite holds for a provider with the demands of efa.
func TestConformanceWithDemands(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		fabrictest.RunConformance(t, func() fabric.Provider { return &provider{cfg: cfg, demands: likeEFA(cfg)} })
	})
}

// It holds where immediates go as messages, also with those demands, but that for a descriptor.
func TestConformanceWithNotices(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		fabrictest.RunConformance(t, func() fabric.Provider { return &provider{cfg: cfg, demands: withNotices()} })
	})
	eachProvider(t, func(t *testing.T, cfg Config) {
		m := likeEFA(cfg)
		m.notices = true
		fabrictest.RunConformance(t, func() fabric.Provider { return &provider{cfg: cfg, demands: m} })
	})
}

// withNotices are the demands of a provider that loses the data of writes.
func withNotices() *demands { return &demands{data: 4, notices: true} }

// It holds whatever order the writes go in, also with those demands.
func TestConformanceReordered(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		for seed := range uint64(*seeds) {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				p := &provider{cfg: cfg}
				if seed%2 == 1 {
					p.demands = likeEFA(cfg)
				}
				fabrictest.RunConformance(t, func() fabric.Provider { return fabrictest.NewReorder(p, seed) })
			})
		}
	})
}
