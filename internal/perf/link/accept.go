package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// mostSilent is how many connections may be silent at once: one more costs the oldest its place.
const mostSilent = 64

var (
	// errDisplaced ends a connection that is silent while many others come.
	errDisplaced = fmt.Errorf("it has said nothing, and %d others came after it", mostSilent)
	// errTaken ends that of a client that is not the first.
	errTaken = errors.New("link: another client was first")
)

// Accept waits for a client on ln and exchanges greetings. It closes ln. A connection that does not
// greet in time is not a client: Accept tells of it by stranger, which may be nil and is called by one goroutine at a
// time, and no client waits for it. A client that does not fit is an error, because it will not come again; it is told.
// The end of ctx ends the wait.
func Accept(ctx context.Context, ln net.Listener, own Greeting, stranger func(error)) (*Link, error) {
	inside, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(inside, func() { _ = ln.Close() })()
	d := &door{own: own, stranger: stranger, came: make(chan arrival, 1)}
	d.all.Go(func() { d.admit(inside, ln) })
	var first arrival
	select {
	case first = <-d.came:
	case <-ctx.Done():
		first.err = fmt.Errorf("link: %w", ctx.Err())
	}
	cancel()
	_ = ln.Close()
	d.all.Wait()
	select {
	case late := <-d.came:
		late.drop()
	default:
	}
	return first.l, first.err
}

// arrival is what Accept waits for: a client, or an error that ends the wait.
type arrival struct {
	l   *Link
	err error
}

// drop is for one that nobody waits for.
func (a arrival) drop() {
	if a.l != nil {
		_ = a.l.Close()
	}
}

// door is where connections greet, each on its own.
type door struct {
	own  Greeting
	came chan arrival // has room for one
	all  sync.WaitGroup

	mu sync.Mutex
	// taken: there was a client. Guarded by mu, as all that follows.
	taken bool
	// stranger is called with mu held.
	stranger func(error)
	// silent are those that have not greeted, the oldest first.
	silent []*caller
}

// caller is a connection that has not greeted.
type caller struct {
	conn net.Conn
	quit context.CancelCauseFunc
}

// admit takes connections until the listener ends.
func (d *door) admit(ctx context.Context, ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			d.arrive(arrival{err: fmt.Errorf("link: %w", err)})
			return
		}
		here, quit := context.WithCancelCause(ctx)
		c := &caller{conn, quit}
		d.enter(c)
		d.all.Go(func() {
			defer quit(nil)
			d.hear(here, c)
		})
	}
}

// arrive ends the wait.
func (d *door) arrive(a arrival) {
	select {
	case d.came <- a:
	default:
		a.drop()
	}
}

// hear exchanges greetings with a caller.
func (d *door) hear(ctx context.Context, c *caller) {
	client := false
	l, err := answer(ctx, c.conn, d.own, func() error {
		client = d.take()
		if !client {
			return errTaken
		}
		return nil
	})
	displaced := errors.Is(context.Cause(ctx), errDisplaced)
	switch {
	case client:
		d.leave(c, nil)
		d.arrive(arrival{l, err})
	case displaced:
		d.leave(c, errDisplaced)
	case ctx.Err() != nil || errors.Is(err, errTaken):
		d.leave(c, nil)
	default:
		d.leave(c, err)
	}
}

// take reports whether a client is the first one.
func (d *door) take() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.taken
	d.taken = true
	return first
}

// enter gives a caller a place.
func (d *door) enter(c *caller) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.silent) == mostSilent {
		d.silent[0].quit(errDisplaced)
		d.silent = d.silent[1:]
	}
	d.silent = append(d.silent, c)
}

// leave takes the place back, and tells of a stranger.
func (d *door) leave(c *caller, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = slices.DeleteFunc(d.silent, func(o *caller) bool { return o == c })
	if why != nil && d.stranger != nil {
		d.stranger(fmt.Errorf("a connection from %s was closed: %w", c.conn.RemoteAddr(), why))
	}
}
