//go:build !(libfabric && cgo && linux)

package libfabric

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Built reports whether the provider is compiled in.
const Built = false

var errNotBuilt = fmt.Errorf("libfabric: %w: this build has no libfabric; build with -tags libfabric, cgo and libfabric-dev installed", fabric.ErrNotSupported)

// New returns fabric.ErrNotSupported in builds without the provider.
func New(Config) (fabric.Provider, error) { return nil, errNotBuilt }

// Devices returns fabric.ErrNotSupported in builds without the provider.
func Devices() ([]DeviceInfo, error) { return nil, errNotBuilt }
