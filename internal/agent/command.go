package agent

import (
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/shm"
)

// commandQueue carries closures from the conductor to an agent, which runs them
// between two cycles.
type commandQueue struct {
	bell   *shm.Bell
	any    atomic.Bool // the queue is not empty
	asleep atomic.Bool

	mu     sync.Mutex
	queue  []func()
	closed bool
}

func newCommandQueue() (*commandQueue, error) {
	b, err := shm.NewBell()
	if err != nil {
		return nil, err
	}
	return &commandQueue{bell: b}, nil
}

// Do runs f on the agent's thread, soon. It reports false, and f will not run,
// when the agent has stopped.
func (q *commandQueue) Do(f func()) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	q.queue = append(q.queue, f)
	q.any.Store(true)
	// SYNC POINT (command): any is stored before asleep is loaded; the agent
	// stores asleep before it looks at any.
	if q.asleep.Load() {
		q.bell.Ring() // with mu held: the bell is closed after closed is set
	}
	q.mu.Unlock()
	return true
}

// Call is do, and waits until f has run. Never call it from an agent.
func (q *commandQueue) Call(f func()) bool {
	done := make(chan struct{})
	if !q.Do(func() { f(); close(done) }) {
		return false
	}
	<-done
	return true
}

// run executes what is queued and returns how much that was.
func (q *commandQueue) run() int {
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
func (q *commandQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.run()
}

func (q *commandQueue) waiting() bool { return q.any.Load() }
func (q *commandQueue) prepareSleep() { q.asleep.Store(true) }
func (q *commandQueue) cancelSleep()  { q.asleep.Store(false) }
