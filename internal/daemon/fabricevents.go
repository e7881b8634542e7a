package daemon

import (
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

// eventSource is implemented by devices that report asynchronous events.
type eventSource interface{ Events() <-chan verbs.Event }

// watchFabric logs what the device reports until the conductor stops. Nothing is
// done about the events here: queue pairs that they end show it in completions.
func (c *conductor) watchFabric() {
	if len(c.fabrics) == 0 {
		return
	}
	s, ok := c.fabrics[0].device.(eventSource)
	if !ok {
		return
	}
	for {
		select {
		case <-c.ctx.Done():
			return
		case e, ok := <-s.Events():
			if !ok {
				return
			}
			line := event.FabricEvent.On(&c.log)
			if e.Kind == verbs.EventPortActive {
				line = c.log.Info()
			}
			line.Str("device", e.Device).Str("event", e.Kind.String()).Int("port", e.Port).Uint32("qpn", e.QPN).
				Msg("event of the RDMA device; for more see: rdmad doctor")
		}
	}
}
