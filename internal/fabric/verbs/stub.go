//go:build !(verbs && cgo && linux)

package verbs

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Built reports whether the provider is compiled in.
const Built = false

var errNotBuilt = fmt.Errorf("verbs: %w: this build has no RDMA; build with -tags verbs, cgo and libibverbs-dev and librdmacm-dev installed", fabric.ErrNotSupported)

// New returns fabric.ErrNotSupported in builds without the provider.
func New(Config) (fabric.Provider, error) { return nil, errNotBuilt }

// Devices returns fabric.ErrNotSupported in builds without the provider.
func Devices() ([]DeviceInfo, error) { return nil, errNotBuilt }
