package daemon

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
	c := &conductor{ctx: context.Background(), log: zerolog.New(&log), fabrics: []*openFabric{{device: d}}}
	d.events <- verbs.Event{Kind: verbs.EventPortError, Device: "rxe0", Port: 1}
	d.events <- verbs.Event{Kind: verbs.EventPortActive, Device: "rxe0", Port: 1}
	close(d.events)
	c.watchFabric() // ends with the device
	lines := strings.Split(log.String(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"level":"warn"`) || !strings.Contains(lines[0], "port error") ||
		!strings.Contains(lines[1], `"level":"info"`) || !strings.Contains(lines[1], "port active") {
		t.Errorf("log:\n%s", log.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c = &conductor{ctx: ctx, fabrics: []*openFabric{{device: &eventfulDevice{events: make(chan verbs.Event)}}}}
	c.watchFabric() // ends with the conductor
	c = &conductor{ctx: context.Background(), fabrics: []*openFabric{{device: struct{ fabric.Device }{}}}}
	c.watchFabric() // a device without events
}
