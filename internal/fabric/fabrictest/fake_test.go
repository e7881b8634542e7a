package fabrictest_test

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
)

func TestFakeConformance(t *testing.T) {
	fabrictest.RunConformance(t, func() fabric.Provider { return fabrictest.NewFake() })
}

// A wrapper without faults, or with ones that only cost time, changes nothing.
func TestFaultyConformance(t *testing.T) {
	for name, inner := range map[string]func() fabric.Provider{
		"fake": func() fabric.Provider { return fabrictest.NewFake() },
		"tcp":  func() fabric.Provider { return tcp.New(tcp.Config{}) },
	} {
		for _, plan := range []fabrictest.Plan{{}, {Delay: 0.5}} {
			t.Run(name, func(t *testing.T) {
				fabrictest.RunConformance(t, func() fabric.Provider { return fabrictest.Faulty(inner(), 7, plan) })
			})
		}
	}
}
