package client

import "sync"

// arrived are the answers of GoInPlace that have arrived and that nobody has waited for yet. They hold
// slots which only their caller would free, who may be the one that waits for room: so who waits
// has them moved into memory of this process. An answer that somebody has in hand stays where it is.
type arrived struct {
	mu    sync.Mutex
	first *Future // a list by Future.after and before; guarded by mu
	// claims is how many claims wait for room: until they have it no answer is left there. Guarded by mu.
	claims int
}

// settle completes a future with an answer that is in its slots. It reports false, having
// done nothing, if somebody waits for room.
func (a *arrived) settle(f *Future, res []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock() // after complete: who waits for f takes it out of the list
	if a.claims > 0 {
		return false
	}
	if f.after = a.first; f.after != nil {
		f.after.before = f
	}
	a.first, f.before, f.arrived = f, nil, true
	f.complete(res, nil)
	return true
}

// take makes sure that a settled future's answer stays where it is.
func (a *arrived) take(f *Future) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f.arrived {
		a.remove(f)
	}
}

// remove runs with mu held.
func (a *arrived) remove(f *Future) {
	if f.before != nil {
		f.before.after = f.after
	} else {
		a.first = f.after
	}
	if f.after != nil {
		f.after.before = f.before
	}
	f.after, f.before, f.arrived = nil, nil, false
}

// begin moves the answers out of the way of a claim that waits for room, until its end.
func (a *arrived) begin() {
	a.mu.Lock()
	defer a.mu.Unlock() // at the end: their callers may release them then, and others use the futures
	a.claims++
	for f := a.first; f != nil; f = a.first {
		a.remove(f)
		f.res = append([]byte{}, f.res...)
		f.consume()
		f.moved = true
		f.lane.freed(f.run.Len)
	}
}

// end is the end of what begin has begun.
func (a *arrived) end() {
	a.mu.Lock()
	a.claims--
	a.mu.Unlock()
}
