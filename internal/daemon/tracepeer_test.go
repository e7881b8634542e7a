package daemon

import (
	"testing"

	"github.com/rdmad/rdmad/internal/peerproto"
)

// A peer that wants requests to be followed for longer than there is a time for has them followed as long as may be.
func TestTraceOfAPeerForVeryLong(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	for _, ms := range []int64{0, 1e13} {
		d.peerTrace("a", &peerproto.Trace{Key: 1, Millis: ms}, &peerproto.Trace{})
		made := false
		r.agent.Commands.Call(func() { made = d.view.Tracer != nil })
		if made != (ms > 0) || made != d.tracerTimer.Load() {
			t.Errorf("%d ms: there is a tracer: %v, it is ended later: %v", ms, made, d.tracerTimer.Load())
		}
	}
}
