package atomics

import (
	"context"
	"fmt"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
)

// server lends its memory, and says what it finds there after each type.
func (t *Tool) server(ctx context.Context, s *perf.Session) error {
	memory := s.Region.Bytes()
	prepare(memory)
	if err := s.Barrier(ctx); err != nil {
		return err
	}
	for _, kind := range t.Types {
		meter := perf.StartMeter()
		var done over
		if err := s.Hear(ctx, kindOver, &done); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if done.Type != kind {
			return &link.ProtocolError{Detail: fmt.Sprintf("the client has done %.40q instead of %s", done.Type, kind)}
		}
		cpu := meter.Read()
		if err := inspect(memory); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if err := s.Link.Send(kindFinal, final{Value: word(memory, offset(kind)), CPU: cpu}); err != nil {
			return err
		}
	}
	return nil
}
