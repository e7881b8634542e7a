//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"net/netip"

	"github.com/rdmad/rdmad/internal/fabric"
)

type manager struct {
	listen netip.AddrPort
	fd     int
}
type cmEnd struct{}

func newManager(*Device, fabric.Options) (*manager, error) { return nil, fabric.ErrNotSupported }
func (m *manager) close() error                             { return nil }
func (m *manager) serve() bool                              { return false }
func (c *cmEnd) disconnect()                                {}
func (e *Endpoint) leaveCM() error                          { return nil }
func (e *Endpoint) connectCM(ctx context.Context, a address, role fabric.Role) error {
	return fabric.ErrNotSupported
}
