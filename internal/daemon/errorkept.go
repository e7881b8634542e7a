package daemon

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
)

const (
	// keptErrors is how many distinct errors the next core gets: they must fit a message of the depot.
	keptErrors = 32
	// keepErrorsEvery is how often they are kept at most.
	keepErrorsEvery = time.Second
)

// errors returns the distinct errors of the daemon's processes, the latest first.
func (c *conductor) errors() []event.Entry {
	list := append([]event.Entry{}, c.events.Errors()...) // an empty list in JSON, not null
	list = append(list, c.told.SupervisorErrors()...)
	event.Sort(list)
	return slices.Clip(list)
}

// keepErrors keeps the distinct errors for the next core until the conductor stops.
func (c *conductor) keepErrors() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.events.Changed():
		}
		list := c.events.Errors()
		c.keepIdentity(func(m *handoff.Node) { m.Errors = fitting(list[:min(len(list), keptErrors)], depot.MaxMeta/2) })
		if !sleep(c.ctx, keepErrorsEvery) {
			return
		}
	}
}

// fitting returns as many of the first entries as take at most so many bytes as JSON, in which a byte of a text may take six: what
// else is kept of the node must not be lost because peers have said odd things.
func fitting(list []event.Entry, most int) []event.Entry {
	for i := range list {
		data, err := json.Marshal(list[i])
		if most -= len(data) + 1; err != nil || most < 0 {
			return list[:i]
		}
	}
	return list
}
