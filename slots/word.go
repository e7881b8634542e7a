package slots

import "fmt"

// Word is the value of a slot word:
//
//	 63                              24 23        12 11       3 2    0
//	+----------------------------------+------------+----------+------+
//	| ticket (40)                      | owner (12) | run (9)  | state|
//	+----------------------------------+------------+----------+------+
//
// run is the number of slots of the message in its first slot, and the distance
// from the first slot in a FOLLOW slot.
type Word uint64

// Limits that follow from the widths of the fields.
const (
	// MaxOwner is the largest attach id. 0 is nobody.
	MaxOwner = 1<<12 - 1
	// MaxRun is the largest number of slots of one message.
	MaxRun = 1<<9 - 1
	// TicketMask is the largest ticket; tickets wrap to 0 after it.
	TicketMask = 1<<40 - 1

	runShift, ownerShift, ticketShift = 3, 12, 24
)

// State is the state of a slot, or of a slot's answer on the mirror side.
type State uint8

// States of the requester's words.
const (
	Free   State = iota // nobody's; only the ticket has a meaning
	Claim               // first slot of a run that is being written
	Follow              // second or later slot of a run, in any state of its first
	Pub                 // published: the sender may take it
	Taken               // journalled by the daemon and sent, or about to be
	Ans                 // answered: the owner may acquire the answer, the daemon may move it
	Read                // acquired: the owner reads the answer and frees the run
	Moved               // the daemon has moved the answer and frees the run; see NewSpill
)

// States of the responder's words.
const (
	Recv   State = iota + 1 // delivered to the service worker that owns the word
	Picked                  // its handler has started
	Done                    // answered in place: the daemon may send the answer
)

var stateText = [...]string{"FREE", "CLAIM", "FOLLOW", "PUB", "TAKEN", "ANS", "READ", "MOVED"}

// MakeWord builds a word. Values beyond their field's width are cut off.
func MakeWord(s State, run, owner int, ticket uint64) Word {
	return Word(uint64(s)&7 | uint64(run)&MaxRun<<runShift | uint64(owner)&MaxOwner<<ownerShift | ticket<<ticketShift)
}

// State returns the state field.
func (w Word) State() State { return State(w & 7) }

// Run returns the run field.
func (w Word) Run() int { return int(w >> runShift & MaxRun) }

// Owner returns the attach id of the owner.
func (w Word) Owner() int { return int(w >> ownerShift & MaxOwner) }

// Ticket returns the generation.
func (w Word) Ticket() uint64 { return uint64(w >> ticketShift) }

// With returns w in another state.
func (w Word) With(s State) Word { return w&^7 | Word(s)&7 }

// freed is the free word that keeps w's ticket.
func (w Word) freed() Word { return w &^ (1<<ticketShift - 1) }

// String prints a requester's word for logs and test failures.
func (w Word) String() string {
	return fmt.Sprintf("%s{run %d owner %d ticket %d}", stateText[w.State()], w.Run(), w.Owner(), w.Ticket())
}

// TicketNewer reports whether ticket a is newer than b, in the wrap-around order
// of 40-bit tickets (RFC 1982 serial number arithmetic).
func TicketNewer(a, b uint64) bool {
	d := (a - b) & TicketMask
	return d != 0 && d < 1<<39
}
