//go:build !(libfabric && cgo && linux)

package libfabric

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A build without the provider says how to get one that has it.
func TestNotBuilt(t *testing.T) {
	_, err := New(Default())
	if !errors.Is(err, fabric.ErrNotSupported) || !strings.Contains(err.Error(), "-tags libfabric") {
		t.Error(err)
	}
	if _, err := Devices(); !errors.Is(err, fabric.ErrNotSupported) {
		t.Error(err)
	}
	if Built {
		t.Error("built")
	}
}
