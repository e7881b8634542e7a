package fabrics

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

// eventSource is implemented by devices that report asynchronous events.
type eventSource interface{ Events() <-chan verbs.Event }

// Watch logs what the device reports, if it does, until ctx ends. Nothing is
// done about the events here: queue pairs that they end show it in completions.
func (f *Fabric) Watch(ctx context.Context, log *zerolog.Logger) {
	s, ok := f.Device.(eventSource)
	if !ok {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-s.Events():
			if !ok {
				return
			}
			line := event.FabricEvent.On(log)
			if e.Kind == verbs.EventPortActive {
				line = log.Info()
			}
			line.Str("device", e.Device).Str("event", e.Kind.String()).Int("port", e.Port).Uint32("qpn", e.QPN).
				Msg("event of the RDMA device; for more see: rdmad doctor")
		}
	}
}
