package client

import (
	"sync"
	"sync/atomic"
	"time"
)

// alarm ends waits that have lasted for some time, so that who waits to be told of something looks by
// itself. One that is set stays so until it goes off, whatever waits begin and end meanwhile, unless one
// wants it sooner: to set a timer for each wait costs more than most waits, because the runtime has another
// thread woken for it. So a wait may be ended sooner than it was to be. The zero alarm is ready.
type alarm struct {
	// over: it has gone off since forget.
	over atomic.Bool

	mu sync.Mutex
	// timer is nil before the first time. due is when it goes off, zero while it is not set.
	timer *time.Timer
	due   time.Time
}

// forget is called when a wait begins.
func (a *alarm) forget() { a.over.Store(false) }

// within makes the alarm go off after d, or sooner: then it calls ring, which is always the same.
func (a *alarm) within(d time.Duration, ring func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := time.Now().Add(d)
	if !a.due.IsZero() && !due.Before(a.due) {
		return
	}
	a.due = due
	if a.timer == nil {
		a.timer = time.AfterFunc(d, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			if !a.due.IsZero() {
				a.due = time.Time{}
				// SYNC POINT (alarm): stored before the ring; who waits looks at it after it has
				// announced its sleep.
				a.over.Store(true)
				ring()
			}
		})
		return
	}
	a.timer.Reset(d)
}

// stop ends it. When it returns ring is not called any more.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.due.IsZero() {
		a.due = time.Time{}
		a.timer.Stop()
	}
}
