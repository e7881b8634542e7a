package attach

import (
	"github.com/rdmad/rdmad/internal/boundedlist"
	"github.com/rdmad/rdmad/slots"
)

// A message is bounded in bytes, and so is what a list in it takes in memory: elements of few bytes as JSON have many there, and
// a daemon has the messages of many workers at a time.
const (
	// maxMethods is more methods than a message has room for, with names of a byte.
	maxMethods = 1 << 12
	// maxNodes is more than any target avoids; see MaxAvoid.
	maxNodes = 64
)

// Methods are what a service offers.
type Methods []Method

// UnmarshalJSON decodes no more than a message has room for.
func (l *Methods) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]Method)(l), maxMethods, "methods")
}

// MethodIDs are the ids of what a service offers.
type MethodIDs []uint32

// UnmarshalJSON decodes no more than there can be methods.
func (l *MethodIDs) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]uint32)(l), maxMethods, "ids of methods")
}

// LaneIDs name lanes.
type LaneIDs []uint16

// UnmarshalJSON decodes no more than a domain has lanes.
func (l *LaneIDs) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]uint16)(l), slots.MaxLanes, "lanes")
}

// Regions describe regions.
type Regions []RegionInfo

// UnmarshalJSON decodes no more than a Have lists.
func (l *Regions) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]RegionInfo)(l), MaxHaveRegions, "regions")
}

// Questions are numbers of questions.
type Questions []uint64

// UnmarshalJSON decodes no more than a worker may ask at a time.
func (l *Questions) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]uint64)(l), MaxAsks, "questions")
}

// Nodes are names of nodes.
type Nodes []string

// UnmarshalJSON decodes no more than a target can avoid; that it avoids no more than it may, Check says.
func (l *Nodes) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]string)(l), maxNodes, "nodes")
}

// own returns the message with no members but those that count in one of its type: a daemon keeps a question until it has
// answered it, for which it may wait for others, and the rest is not to be kept with it.
func (m *Message) own() *Message {
	o := &Message{Type: m.Type, Seq: m.Seq}
	switch m.Type {
	case TypeHello:
		o.Hello = m.Hello
	case TypeWelcome:
		o.Welcome = m.Welcome
	case TypeFail:
		o.Fail = m.Fail
	case TypeResolve:
		o.Target = m.Target
	case TypeResolved:
		o.Route = m.Route
	case TypeRegister:
		o.Methods = m.Methods
	case TypeRegistered:
		o.MethodIDs = m.MethodIDs
	case TypeLane, TypeClosed, TypeMapped:
		o.Lane = m.Lane
	case TypeAlloc, TypeRegion, TypeFree:
		o.Region = m.Region
	case TypeExport:
		o.Region, o.Node = m.Region, m.Node
	case TypeExported, TypePing:
		o.Node = m.Node
	case TypePong:
		o.Node, o.RTT = m.Node, m.RTT
	case TypeStatusIs:
		o.StatusJSON = m.StatusJSON
	case TypeTrace:
		o.Trace = m.Trace
	case TypeTraced:
		o.TracedJSON = m.TracedJSON
	case TypeDrain:
		o.Drain = m.Drain
	case TypeResumed:
		o.Resumed = m.Resumed
	case TypeHave:
		o.Have = m.Have
	case TypeGone:
		o.Lane, o.Gone = m.Lane, m.Gone
	case TypeGoodbye:
		o.Reason = m.Reason
	}
	return o
}
