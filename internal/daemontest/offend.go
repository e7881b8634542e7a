package daemontest

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Offend is what a Helper does that breaks the protocol: it attaches as a service, prints that it has, and says that it has
// finished requests of lanes that it never had, until it is disconnected. It says goodbye first if it is to. Reason is what it
// is disconnected for. If it lives on, its domain gets new memory.
func Offend(socket string, goodbye bool) (reason, err error) {
	over := make(chan error, 1)
	s, err := attach.Open(context.Background(), socket, attach.Hello{Role: attach.RoleService, Name: "offender"},
		attach.Events{Ended: func(err error) { over <- err }})
	if err != nil {
		return nil, err
	}
	fmt.Println("attached")
	if goodbye {
		if err := s.Tell(&attach.Message{Type: attach.TypeBye}); err != nil {
			return nil, err
		}
	}
	for {
		for i := range 100 {
			s.Rings.Up.Push(slots.MakeHint(slots.MaxLanes-1, i, 1))
		}
		if sleep := s.Bells.MarkWorker(s.Welcome.ID); sleep != 0 {
			s.Bell.Ring()
			s.Bells.Rung(sleep)
		}
		select {
		case reason := <-over:
			return reason, nil
		case <-time.After(time.Millisecond):
		}
	}
}
