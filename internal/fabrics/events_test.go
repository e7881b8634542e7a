package fabrics

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

// eventfulDevice has events to report.
type eventfulDevice struct {
	fabric.Device
	events chan verbs.Event
}

func (d *eventfulDevice) Events() <-chan verbs.Event { return d.events }

func TestFabricEvents(t *testing.T) {
	var log bytes.Buffer
	d := &eventfulDevice{events: make(chan verbs.Event, 2)}
	to := zerolog.New(&log)
	d.events <- verbs.Event{Kind: verbs.EventPortError, Device: "rxe0", Port: 1}
	d.events <- verbs.Event{Kind: verbs.EventPortActive, Device: "rxe0", Port: 1}
	close(d.events)
	(&Fabric{Device: d}).Watch(context.Background(), &to) // ends with the device
	lines := strings.Split(log.String(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"level":"warn"`) || !strings.Contains(lines[0], "port error") ||
		!strings.Contains(lines[1], `"level":"info"`) || !strings.Contains(lines[1], "port active") {
		t.Errorf("log:\n%s", log.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	(&Fabric{Device: &eventfulDevice{events: make(chan verbs.Event)}}).Watch(ctx, &to) // ends with its context
	(&Fabric{Device: struct{ fabric.Device }{}}).Watch(context.Background(), &to)      // a device without events
}
