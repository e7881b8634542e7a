package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Idempotent says that a request of the method may be executed more than once, also by
// several processes at the same time, and that any of the answers will do. A request that
// was not executed, or may have been, because its handler's process, its node or the way
// there was lost, or because nobody serves the method, is then sent again: to the same node
// if the target names one, else to another node as long as one serves the method. That goes
// on until there is an answer, an error of the handler being one, or the context or the
// connection ends, but for no more than 32 tries, between which the library waits for about
// a millisecond at first and a second in the end, 11 to 22 s in all. Between them the daemon may
// wait for a node besides (limits.connect_wait). Looking a target up for the first time
// (Conn.Method) is not part of a request, and not tried again.
//
// If one of the tries may have been executed, so may the request: its outcome is
// ErrMaybeExecuted, or a DeadlineError with Sent true, whatever came of the last one. NoWait
// is about the first try only. While the caller's own node drains nothing is sent again.
//
// Call, CallInto, CallFunc, CallInPlace and CallBatch send the caller's bytes again, which
// must not change until they return. Go, GoInto, GoTo, PostConfirmed and PostTo keep a copy
// of the request until the outcome is known. A connection keeps copies of at most 64 MiB,
// each counted as 1 KiB at least; requests beyond wait, or with NoWait end in
// ErrBackpressure, as with a full ring. The deadline of their context bounds the tries; as
// of every request that they send, its cancellation does not.
//
// Reserve, Post, GoInPlace, Stream, StreamWith, CallRegions and GoRegions, and Ordered requests, cannot
// be sent again: with Idempotent they are refused with ErrInvalid.
func Idempotent() CallOption { return func(o *callOptions) { o.idempotent = true } }

const (
	// maxTries is how often a request is sent at most.
	maxTries = 32
	// The waits between tries double. Each is up to half shorter, at random, so that
	// what failed at once does not come back at once.
	firstPause = time.Millisecond
	lastPause  = time.Second
)

// tries is what is known of the tries of a request.
type tries struct {
	n int
	// accepted: one of them has had an outcome. maybe: one of them may have been executed.
	accepted, maybe bool
	// last is the node where the last one failed, avoid are those not to try next.
	last  string
	avoid []string
}

// repeat tries once until it succeeds, and returns the request's outcome otherwise. When
// once has succeeded t may be another goroutine's.
func (t *tries) repeat(ctx context.Context, m *Method, once func(*Method) error) error {
	for {
		r, err := m.way(ctx, t)
		if err == nil {
			err = once(m)
		}
		if err == nil {
			return nil
		}
		if !t.failed(r, err) {
			return t.outcome(err)
		}
		if err = t.pause(ctx, m, err); err != nil {
			return t.outcome(err)
		}
		m = m.patient()
	}
}

// way returns where the next try goes.
func (m *Method) way(ctx context.Context, t *tries) (*route, error) {
	if ctx.Err() != nil {
		return nil, m.late(ctx, false)
	}
	r := m.route.p.Load()
	if r != nil && (m.target.Node != "" || !slices.Contains(t.avoid, r.peer())) {
		return r, nil
	}
	return m.resolve(ctx, r, preference{avoid: t.avoid})
}

// patient returns the method without NoWait.
func (m *Method) patient() *Method {
	if !m.opts.noWait {
		return m
	}
	v := *m
	v.opts.noWait = false
	return &v
}

// failed notes how a try has ended that went by r, if there was a way, and reports whether
// there is to be another one.
func (t *tries) failed(r *route, err error) bool {
	again := repeatable(err)
	t.accepted = t.accepted || again
	t.maybe = t.maybe || errors.Is(err, ErrMaybeExecuted)
	if t.n++; t.n >= maxTries || !again {
		return false
	}
	if r == nil {
		return true
	}
	// A node whose lanes are open has perhaps lost a process and has others.
	node := r.peer()
	if (node == t.last || errors.Is(err, ErrNoService) || r.closed()) && !slices.Contains(t.avoid, node) {
		if len(t.avoid) == attach.MaxAvoid {
			t.avoid = t.avoid[1:] // may be back
		}
		t.avoid = append(t.avoid, node)
	}
	t.last = node
	return true
}

// closed reports whether none of a route's lanes for the largest messages is open.
func (r *route) closed() bool {
	c := r.widest.lanes[0].conn
	if !c.gate.enter() {
		return true
	}
	defer c.gate.leave()
	return !slices.ContainsFunc(r.widest.lanes, func(l *lane) bool { return l.ring.State() != slots.LaneClosed })
}

// finals are errors of requests that another try would not change.
var finals = []error{ErrDeadline, ErrClosed, ErrTooLarge, ErrBackpressure, ErrInvalid, ErrLimit}

// repeatable reports whether a request that failed with err may be answered at another
// try. An error that says nothing about its execution is an answer, or the caller's fault.
func repeatable(err error) bool {
	if !errors.Is(err, ErrNotExecuted) && !errors.Is(err, ErrMaybeExecuted) {
		return false
	}
	return !slices.ContainsFunc(finals, func(final error) bool { return errors.Is(err, final) })
}

// pause waits before the next try. It is ended by its time, by ctx and by the end of the
// connection; the error says which, and last is how the last try has ended.
func (t *tries) pause(ctx context.Context, m *Method, last error) error {
	most := min(firstPause<<(t.n-1), lastPause)
	timer := time.NewTimer(most - rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-m.conn.life.Done():
	}
	switch {
	case m.conn.ended.Load():
		return m.lostConn()
	case ctx.Err() != nil:
		late := m.late(ctx, false)
		late.Cause = fmt.Errorf("%w (the last of %d tries: %s)", late.Cause, t.n, last.Error())
		return late
	}
	return nil
}

// lostConn is the outcome of a request that is not sent because the connection has ended.
func (m *Method) lostConn() error {
	return fmt.Errorf("%s: %w: %w", m.name, ErrNotExecuted, m.conn.endError())
}

// outcome makes the outcome of the request of that of its last try.
func (t *tries) outcome(err error) error {
	if err == nil || isAnswer(err) {
		return err
	}
	if t.accepted && !errors.Is(err, ErrMaybeExecuted) && !errors.Is(err, ErrNotExecuted) {
		// Another try was not accepted; the request was.
		err = fmt.Errorf("%w: %w", ErrNotExecuted, err)
	}
	if !t.maybe || errors.Is(err, ErrMaybeExecuted) {
		return err
	}
	var late *DeadlineError
	if errors.As(err, &late) {
		return late.of(late.Target, true)
	}
	return &doubtfulError{err}
}

// isAnswer reports whether err is what the handler, which has run, has brought about.
func isAnswer(err error) bool {
	var large *TooLargeError
	return errors.As(err, &large) && large.What == "answer" || errors.Is(err, ErrRemote) && !errors.Is(err, ErrNotExecuted)
}

// secondTry makes the outcome of a request of that of its second try, after a first one that was not
// executed.
func secondTry(err error) error {
	t := tries{accepted: true}
	return t.outcome(err)
}

// doubtfulError is the outcome of a request whose last try was not executed, and an earlier
// one may have been.
type doubtfulError struct{ last error }

// Error says that of the last try.
func (e *doubtfulError) Error() string {
	return e.last.Error() + "; the request " + ErrMaybeExecuted.Error() + " before"
}

// Is is true for ErrMaybeExecuted, and for what the last try's error is but ErrNotExecuted.
func (e *doubtfulError) Is(target error) bool {
	return target == ErrMaybeExecuted || target != ErrNotExecuted && errors.Is(e.last, target)
}

// notAgain refuses what a method with Idempotent cannot send again.
func (m *Method) notAgain(what string) error {
	return fmt.Errorf("client: %s: %w: %s cannot be sent again: use the method without client.Idempotent", m.name, ErrInvalid, what)
}

// checkAgain refuses a method whose requests cannot be sent again, whoever sends them.
func (m *Method) checkAgain() error {
	if m.opts.ordered {
		return m.notAgain("an ordered request, which would lose its place,")
	}
	return nil
}

// callAgain is CallInto for a method with Idempotent.
func (m *Method) callAgain(ctx context.Context, req, dst []byte) (answer []byte, err error) {
	if err := m.checkAgain(); err != nil {
		return nil, err
	}
	var t tries
	err = t.repeat(ctx, m, func(m *Method) (err error) {
		answer, err = m.callOnce(ctx, req, dst)
		return err
	})
	return answer, err
}

// fetchAgain is fetchOnce for a method with Idempotent.
func (m *Method) fetchAgain(ctx context.Context, req []byte) (f *Future, err error) {
	if err := m.checkAgain(); err != nil {
		return nil, err
	}
	var t tries
	err = t.repeat(ctx, m, func(m *Method) (err error) {
		f, err = m.fetchOnce(ctx, req)
		return err
	})
	return f, err
}

// callBatchAgain is CallBatch for a method with Idempotent: what has failed is sent again
// when all have an outcome.
func (m *Method) callBatchAgain(ctx context.Context, reqs [][]byte) ([]Result, error) {
	if err := m.checkAgain(); err != nil {
		return nil, err
	}
	var t tries
	if err := t.repeat(ctx, m, func(m *Method) error { return m.reach(ctx) }); err != nil {
		return nil, err
	}
	b := newBatch(m, reqs)
	each := make([]tries, len(reqs))
	failed := func(i int) bool { return b.results[i].Err != nil && repeatable(b.results[i].Err) }
	for chosen := func(int) bool { return true }; ; {
		r, err := m.way(ctx, &t)
		if err == nil && !m.conn.gate.enter() {
			err = m.lostConn()
		}
		if err == nil {
			b.send(ctx, chosen)
			m.conn.gate.leave()
			b.wait(ctx)
		} else {
			b.fail(chosen, err)
		}
		for i := range b.results {
			if e := b.results[i].Err; failed(i) {
				each[i].accepted, each[i].maybe = true, each[i].maybe || errors.Is(e, ErrMaybeExecuted)
				err = e
			}
		}
		if err == nil || !t.failed(r, err) {
			break
		}
		chosen = failed
		if err = t.pause(ctx, m, err); err != nil {
			b.fail(chosen, err)
			break
		}
		b.m = b.m.patient()
	}
	for i := range b.results {
		b.results[i].Err = each[i].outcome(b.results[i].Err)
	}
	return b.results, nil
}
