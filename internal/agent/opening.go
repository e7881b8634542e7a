package agent

// Opening identifies one connection of a lane: the session over which it was
// opened, and the number of the question that opened it.
type Opening struct {
	Session Conversation
	Seq     uint64
}

// Conversation is the session with a peer, as far as agents have to do with it.
type Conversation interface {
	// Reason returns why it is over; nil while it lives.
	Reason() error
}
