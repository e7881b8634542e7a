package fabrictest

import (
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// The suite holds for a fabric that keeps no order.
func TestReorderConformance(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			RunConformance(t, func() fabric.Provider { return NewReorder(NewFake(), seed) })
		})
	}
}
