//go:build libfabric && cgo && linux

package libfabric

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
)

func TestConformance(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		fabrictest.RunConformance(t, func() fabric.Provider { return newProvider(t, cfg) })
	})
}
