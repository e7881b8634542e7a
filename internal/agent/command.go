package agent

import (
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/shm"
)

// CommandQueue carries closures from the conductor to an agent, which runs them
// between two cycles.
type CommandQueue struct {
	bell   *shm.Bell
	any    atomic.Bool // the queue is not empty
	asleep atomic.Bool

	mu     sync.Mutex
	queue  []func()
	closed bool
}

func newCommandQueue() (*CommandQueue, error) {
	b, err := shm.NewBell()
	if err != nil {
		return nil, err
	}
	return &CommandQueue{bell: b}, nil
}

// Bell returns what wakes the agent. The queue keeps owning it.
func (q *CommandQueue) Bell() *shm.Bell { return q.bell }

// Do runs f on the agent's thread, soon. It reports false, and f will not run,
// when the agent has stopped.
func (q *CommandQueue) Do(f func()) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.queue = append(q.queue, f)
	q.any.Store(true)
	// SYNC POINT (command): any is stored before asleep is loaded; pairs with
	// prepareSleep.
	if q.asleep.Load() {
		q.bell.Ring() // with mu held: the bell is closed after closed is set
	}
	q.mu.Unlock()
	return true
}

// Call is Do, and waits until f has run. Never call it from an agent.
func (q *CommandQueue) Call(f func()) bool {
	done := make(chan struct{})
	if !q.Do(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// run executes what is queued and returns how much that was.
func (q *CommandQueue) run() int {
	if !q.any.Load() {
		return 0
	}
	q.mu.Lock()
	batch := q.queue
	q.queue = nil
	q.any.Store(false)
	q.mu.Unlock()
	for _, f := range batch {
		f()
	}
	return len(batch)
}

// close makes further calls fail and runs what came before.
func (q *CommandQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.run()
}

func (q *CommandQueue) waiting() bool { return q.any.Load() }

// prepareSleep announces a sleep.
//
// SYNC POINT (command): asleep is stored before the agent looks at waiting for the last time; pairs with Do.
func (q *CommandQueue) prepareSleep() { q.asleep.Store(true) }
func (q *CommandQueue) cancelSleep()  { q.asleep.Store(false) }
