package atomics

import (
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/report"
)

// plain is a provider whose devices do no atomic operations.
type plain struct{ fabric.Provider }

func (p plain) Open(o fabric.Options) (fabric.Device, error) {
	d, err := p.Provider.Open(o)
	return plainDevice{d}, err
}

type plainDevice struct{ fabric.Device }

func (d plainDevice) Caps() fabric.Caps {
	c := d.Device.Caps()
	c.Atomics = false
	return c
}

// region is memory of a test.
type region []byte

func (r region) Bytes() []byte            { return r }
func (r region) Remote() fabric.RemoteKey { return fabric.RemoteKey{} }
func (r region) Close() error             { return nil }

func samples() *report.Samples { return report.NewSamples(1) }
