package peerproto

import "github.com/rdmad/rdmad/internal/boundedlist"

// A frame is bounded in bytes, and so is what a list in it takes in memory: elements of few bytes as JSON have many there, and
// who has sent some frames of nothing else could have this node hold very much memory.
const (
	// maxListings is more than a frame has room for: each is `{"domain":"d","service":"s","method":"m"},` at the least.
	maxListings = MaxFrame / 40
	// maxFollowed is how many requests a trace can be about. No sender follows a tenth as many in a domain (slots.TakenStamps).
	maxFollowed = 1 << 10
	// maxFabrics is more providers than there are.
	maxFabrics = 64
)

// Listings is a directory.
type Listings []Listing

// UnmarshalJSON decodes no more than a frame has room for.
func (l *Listings) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]Listing)(l), maxListings, "methods in a directory")
}

// Marks are requests that are followed.
type Marks []uint64

// UnmarshalJSON decodes no more than can be followed.
func (l *Marks) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]uint64)(l), maxFollowed, "marks in a trace")
}

// Stages is what is known of requests that are followed.
type Stages []Stage

// UnmarshalJSON decodes no more than can be followed.
func (l *Stages) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]Stage)(l), maxFollowed, "requests in a trace")
}

// Fabrics are names of providers.
type Fabrics []string

// UnmarshalJSON decodes no more than a node can offer.
func (l *Fabrics) UnmarshalJSON(data []byte) error {
	return boundedlist.Decode(data, (*[]string)(l), maxFabrics, "fabrics in a hello")
}

// own returns the message with no members but those that count in one of its type: what it is about may be kept for as long as an
// answer takes, and the rest is not to be kept with it.
func (m *Message) own() *Message {
	o := &Message{Type: m.Type, Seq: m.Seq}
	switch m.Type {
	case TypeHello:
		o.Hello = m.Hello
	case TypeReady, TypeClock, TypePong:
		o.Clock = m.Clock
	case TypeReject, TypeRefuse:
		o.Reason = m.Reason
	case TypeDirectory:
		o.Directory = m.Directory
	case TypeOpen, TypeAccept:
		o.Lane = m.Lane
	case TypeBroken:
		o.Lane, o.Reason = m.Lane, m.Reason
	case TypeGone:
		o.Lane, o.Caller = m.Lane, m.Caller
	case TypeExport, TypeUnexport, TypeRevoke:
		o.Region = m.Region
	case TypeTrace, TypeTraced:
		o.Trace = m.Trace
	}
	return o
}
