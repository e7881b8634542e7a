package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
)

const (
	// musterTime bounds the start of a member.
	musterTime = 30 * time.Second
	// memberName is behind a tool's name in the greetings of a lead and its members.
	memberName = " member"
)

// Crowd is a Tool whose client can be several processes. They have endpoints and memory, and one
// process leads them: it has none, but the link to the server, and one to each member.
type Crowd interface {
	Tool
	// Members is how many processes the client is, 1: no crowd.
	Members() int
	// Lead does the client's part that is left to the leader, and returns the result. A member that
	// waits for others meanwhile does so at a Barrier, or ends the run by its silence.
	Lead(context.Context, *Lead) (any, error)
}

// Lead is what the leader of a Crowd has, when the endpoints of all members are connected.
type Lead struct {
	Server *link.Link
	// Members are those of the crowd, in the order of their endpoints.
	Members []*link.Link
	// Used says what the first member really uses, Theirs what the server does.
	Used, Theirs Used

	stops []func() bool
	mu    sync.Mutex
	// known are the members again. Guarded by mu.
	known []*member
	// listening: a member that is silent ends the run. Guarded by mu.
	listening bool
}

// Ending is called when nothing is missed any more if a member or the server ends: before that it ends
// the run.
func (d *Lead) Ending() {
	for _, stop := range d.stops {
		stop()
	}
}

// Muster runs a Crowd's client against the server at address. Start starts a member, which must do
// Join with the other end of the connection that start returns; connected may be nil. Errors for
// which IsInput is true have done nothing.
func Muster(ctx context.Context, src Source, address string, tool Crowd, start func(context.Context) (net.Conn, error), connected func(own, theirs Used)) (any, error) {
	l, err := dial(ctx, src, address, tool)
	if err != nil {
		return nil, err
	}
	result, err := muster(ctx, src, &Lead{Server: l}, tool, start, connected)
	return result, finish(l, err)
}

func muster(ctx context.Context, src Source, d *Lead, tool Crowd, start func(context.Context) (net.Conn, error), connected func(own, theirs Used)) (result any, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// watch ends every wait when a side is gone, whichever is waited for.
	watch := func(who string, l *link.Link) {
		d.stops = append(d.stops, context.AfterFunc(l.Context(), func() { cancel(fmt.Errorf("%s: %w", who, l.Err())) }))
	}
	defer func() {
		d.Ending()
		if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
			err = cause
		}
		for _, l := range d.Members {
			err = errors.Join(err, dismiss(l, err))
		}
	}()
	if err := order(ctx, d.Server, tool); err != nil {
		return nil, err
	}
	watch("the server", d.Server)
	defer d.vouch(cancel)()
	g := src.greeting(tool)
	g.Tool += memberName
	for i := range tool.Members() {
		l, err := enlist(ctx, g, start)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
		d.enter(l)
		watch(fmt.Sprintf("client %d", i), l)
		if err := order(ctx, l, tool); err != nil {
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
	}
	if err := d.introduce(ctx); err != nil {
		return nil, err
	}
	if connected != nil {
		connected(d.Used, d.Theirs)
	}
	d.listen()
	return tool.Lead(ctx, d)
}

// enlist starts a member.
func enlist(ctx context.Context, g link.Greeting, start func(context.Context) (net.Conn, error)) (*link.Link, error) {
	conn, err := start(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, musterTime)
	defer cancel()
	return link.Greet(limited, conn, g)
}

// dismiss ends the link to a member, and says why if that is for an error.
func dismiss(l *link.Link, why error) error {
	if why != nil && l.Err() == nil {
		l.Fail(why, IsInput(why))
	}
	return l.Close()
}

// introduce connects the endpoints of all members with those of the server, which takes them for
// those of one process.
func (d *Lead) introduce(ctx context.Context) error {
	var all, theirs offer
	counts := make([]int, len(d.Members))
	for i, l := range d.Members {
		var own offer
		if err := l.Receive(ctx, kindEndpoint, &own); err != nil {
			return err
		}
		counts[i] = len(own.Addresses)
		all.Addresses = append(all.Addresses, own.Addresses...)
	}
	if err := d.Server.Send(kindEndpoint, all); err != nil {
		return err
	}
	if err := d.Server.Receive(ctx, kindEndpoint, &theirs); err != nil {
		return err
	}
	if len(theirs.Addresses) != len(all.Addresses) {
		return &link.ProtocolError{Detail: fmt.Sprintf("%d addresses of endpoints instead of %d", len(theirs.Addresses), len(all.Addresses))}
	}
	rest := theirs.Addresses
	for i, l := range d.Members {
		part := offer{Addresses: rest[:counts[i]], Buffer: theirs.Buffer, Regions: theirs.Regions}
		rest = rest[counts[i]:]
		if err := l.Send(kindEndpoint, part); err != nil {
			return err
		}
	}
	for i, l := range d.Members {
		var used Used
		if err := l.Receive(ctx, kindUsed, &used); err != nil {
			return err
		}
		if i == 0 {
			d.Used = used
		}
	}
	if err := d.Server.Send(kindUsed, d.Used); err != nil {
		return err
	}
	if err := d.Server.Receive(ctx, kindUsed, &d.Theirs); err != nil {
		return err
	}
	for _, l := range d.Members {
		if err := l.Send(kindUsed, d.Theirs); err != nil {
			return err
		}
	}
	return nil
}

// Barrier waits until all members have come to a Session.Barrier, and with server the server, too;
// then they go on.
func (d *Lead) Barrier(ctx context.Context, server bool) error {
	for i, l := range d.Members {
		if err := l.Receive(ctx, kindBarrier, &nothing{}); err != nil {
			return err
		}
		d.waits(i, true)
	}
	if server {
		if err := d.Server.Send(kindBarrier, nothing{}); err != nil {
			return err
		}
		if err := d.Server.Receive(ctx, kindBarrier, &nothing{}); err != nil {
			return err
		}
	}
	for i, l := range d.Members {
		d.waits(i, false)
		if err := l.Send(kindBarrier, nothing{}); err != nil {
			return err
		}
	}
	return nil
}

// Enlist is what a member does: with the connection to its leader, which becomes the link's. Host is
// the address of this machine by which the server is reached. The fields of the tool are those that
// the leader sends; its session's link is that to the leader.
func Enlist(ctx context.Context, src Source, conn net.Conn, host string, tool Tool) error {
	g := src.greeting(tool)
	g.Tool += memberName
	l, err := link.Answer(ctx, conn, g)
	if err != nil {
		return err
	}
	_, err = obey(ctx, src, l, host, fabric.Active, tool, nil)
	return finish(l, err)
}
