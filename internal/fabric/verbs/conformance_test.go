//go:build verbs && cgo && linux

package verbs

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
)

func TestConformance(t *testing.T) {
	for _, mode := range []string{ConnectOOB, ConnectCM} {
		t.Run(mode, func(t *testing.T) {
			needDevice(t)
			cfg := Default()
			cfg.Connect = mode
			fabrictest.RunConformance(t, func() fabric.Provider { return newProvider(t, cfg) })
		})
	}
}
