package daemon

import (
	"encoding/json"
	"sync"

	"github.com/rdmad/rdmad/internal/status"
)

// statusRounds collects the state of the node for all who ask: one collection at a time, because agents have a part in each, and
// each for all who have asked before it began. However many ask, and again and again, nobody waits for more than the
// collection that is under way and one more.
type statusRounds struct {
	// turn is held by whoever collects.
	turn sync.Mutex

	mu sync.Mutex
	// next is the collection that has not begun yet; nil if nobody waits for one.
	next *statusRound
}

// statusRound is one collection. All is fixed, and nobody's to change, once done is closed.
type statusRound struct {
	done chan struct{}
	node *status.Node
	// encoded returns it as JSON, which is made once.
	encoded func() ([]byte, error)
}

// get returns what a collection says that has begun after the call.
func (r *statusRounds) get(collect func() *status.Node) *statusRound {
	r.mu.Lock()
	round := r.next
	if round != nil {
		r.mu.Unlock()
		<-round.done // by whoever has made it
		return round
	}
	round = &statusRound{done: make(chan struct{})}
	r.next = round
	r.mu.Unlock()

	r.turn.Lock()
	defer r.turn.Unlock()
	r.mu.Lock()
	r.next = nil // whoever asks from now on waits for another one
	r.mu.Unlock()
	round.node = collect()
	round.encoded = sync.OnceValues(func() ([]byte, error) { return json.Marshal(round.node) })
	close(round.done)
	return round
}
