package verbs

import "fmt"

// EventKind is what an asynchronous event of a device is about.
type EventKind uint8

const (
	// EventOther is an event that needs no action, and is only counted.
	EventOther EventKind = iota
	// EventPortActive: the port works again.
	EventPortActive
	// EventPortError: the port went down. Connections fail when their retries
	// are used up.
	EventPortError
	// EventGIDChange, EventLIDChange and EventPKeyChange: an address of the port
	// changed. Connections that use it fail; new ones use the LID that the port has
	// then, and need the chosen GID, at whatever index, or another core.
	EventGIDChange
	EventLIDChange
	EventPKeyChange
	// EventQPFatal: a queue pair broke; its connection ends.
	EventQPFatal
	// EventCQError: a completion queue broke; the connections of its endpoints
	// end.
	EventCQError
	// EventDeviceFatal: the device broke or was removed; all connections end.
	EventDeviceFatal

	eventKinds
)

var eventText = [eventKinds]string{
	EventOther: "other", EventPortActive: "port active", EventPortError: "port error", EventGIDChange: "GID change",
	EventLIDChange: "LID change", EventPKeyChange: "P_Key change", EventQPFatal: "queue pair fatal",
	EventCQError: "completion queue error", EventDeviceFatal: "device fatal",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if k < eventKinds {
		return eventText[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is an asynchronous event of a device.
type Event struct {
	Kind   EventKind
	Device string
	// Port is set for events of a port, QPN for those of a queue pair.
	Port int
	QPN  uint32
}

// String says all of it in one line.
func (e Event) String() string {
	s := e.Device + ": " + e.Kind.String()
	if e.Port > 0 {
		s += fmt.Sprintf(", port %d", e.Port)
	}
	if e.QPN > 0 {
		s += fmt.Sprintf(", queue pair %#x", e.QPN)
	}
	return s
}
