package server

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/shm"
)

// What a caller that is gone has begun ends, and nothing of another caller, of another
// lane, or of one that has got the same id since.
func TestGoneEndsExchanges(t *testing.T) {
	x := &exchanges{server: &Server{base: context.Background()}, limit: 1 << 20, maxStreams: 10, lease: exchangeLease, open: make(map[uint64]*serverExchange)}
	add := func(from caller) *serverExchange {
		s := &Stream{
			x: x, in: exchange.NewInbox(exchange.Window, exchange.MaxMessage), out: exchange.NewOutbox(exchange.Window, exchange.Window),
			readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		}
		s.context(0)
		s.e = &serverExchange{from: from, stream: s}
		if ok, why := x.add(s.e); !ok {
			t.Fatal(why)
		}
		t.Cleanup(func() { x.remove(s.e) })
		return s.e
	}
	its, others, elsewhere := add(caller{3, 7}), add(caller{3, 8}), add(caller{4, 7})
	large := &serverExchange{from: caller{3, 7}, bytes: 100, request: &largeRequest{}}
	if ok, why := x.add(large); !ok {
		t.Fatal(why)
	}
	at := shm.Nanotime()
	for shm.Nanotime() == at { // the clock's step
	}
	next := add(caller{3, 7})
	for range 2 {
		x.callerGone(caller{3, 7}, at)
		if got := context.Cause(its.stream.ctx); !errors.Is(got, ErrGivenUp) {
			t.Errorf("its stream: %v", got)
		}
		if x.open[large.id] != nil || x.bytes != 0 {
			t.Error("its large request is kept")
		}
		for name, e := range map[string]*serverExchange{"another's": others, "another lane's": elsewhere, "the next one's": next} {
			if err := e.stream.ctx.Err(); err != nil {
				t.Errorf("%s stream: %v", name, err)
			}
		}
	}
}

// A one-way message that is all there outlives its caller, and is no exchange any more when its handler has returned. Without its last
// part it ends.
func TestGoneLeavesOneWayMessages(t *testing.T) {
	x := &exchanges{server: &Server{base: context.Background()}, limit: 1 << 20, maxStreams: 10, lease: exchangeLease, open: make(map[uint64]*serverExchange)}
	add := func(there int) *serverExchange {
		e := &serverExchange{from: caller{3, 7}, bytes: 100, request: &largeRequest{}, oneWay: true}
		if ok, why := x.add(e); !ok {
			t.Fatal(why)
		}
		e.request.begin(make([]byte, 100), there)
		return e
	}
	whole, part := add(100), add(99)
	x.callerGone(caller{3, 7}, shm.Nanotime())
	if x.open[whole.id] != whole || x.open[part.id] != nil || x.bytes != 100 {
		t.Errorf("%d exchanges of %d bytes are left", len(x.open), x.bytes)
	}
	if buf, ok := whole.request.take(); !ok || len(buf) != 100 || !x.hand(whole) {
		t.Error("no handler can have it")
	}
	if x.handed(whole); len(x.open) != 0 || x.bytes != 0 {
		t.Errorf("%d exchanges of %d bytes are left behind the handler", len(x.open), x.bytes)
	}
}

// letLeasePass makes the lease of an exchange end now.
func letLeasePass(x *exchanges, e *serverExchange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.due = shm.Nanotime()
}

// A process that has stood still for longer than the lease reads first what has come meanwhile.
func TestLeaseThatEndsLate(t *testing.T) {
	x, s := begun(t)
	x.mu.Lock()
	s.e.due -= int64(exchangeLease + 2*tardy)
	x.mu.Unlock()
	if x.expire(s.e); x.open[s.e.id] != s.e || s.ctx.Err() != nil {
		t.Error("it ended with the process's own pause")
	}
	// Somebody has prolonged it since the timer said so: the first expire.
	if x.expire(s.e); x.open[s.e.id] != s.e || s.ctx.Err() != nil {
		t.Error("it ended beside a part")
	}
	letLeasePass(x, s.e)
	if x.expire(s.e); x.open[s.e.id] != nil || s.ctx.Err() == nil {
		t.Error("it did not end in time")
	}
}

// The context of a call ends with its caller, whether it is asked for before or after that
// is known, and not that of another call.
func TestGoneEndsCalls(t *testing.T) {
	s := &Server{base: context.Background()}
	c := &Call{server: s, lane: 3}
	b := &batch{}
	b.call.Store(c)
	s.pool.batches = []*batch{b}
	begin := func(ticket uint64) {
		c.run.Index, c.run.Ticket, c.ctx, c.cancel = 9, ticket, nil, nil
		c.open.Store(openName(c.lane, c.run.Index, c.run.Ticket))
	}
	over := func() {
		c.open.Store(0)
		if c.cancel != nil || c.gone.Load() != 0 {
			c.noMore()
		}
	}
	gone := func(lane uint16, slot, ticket uint64) {
		s.callerGone(lane, attach.Gone{Caller: 1, Calls: binary.LittleEndian.AppendUint64(nil, ticket<<24|slot)})
	}
	begin(1)
	before := c.Context()
	gone(3, 9, 1)
	if got := context.Cause(before); !errors.Is(got, ErrGivenUp) {
		t.Errorf("a context that is there: %v", got)
	}
	over()
	begin(2)
	gone(3, 9, 2)
	if got := context.Cause(c.Context()); !errors.Is(got, ErrGivenUp) {
		t.Errorf("a context that comes later: %v", got)
	}
	over()
	gone(3, 9, 3) // before it begins, and after the last is over
	begin(3)
	gone(3, 9, 2)
	gone(3, 8, 3)
	gone(4, 9, 3)
	ctx := c.Context()
	if err := ctx.Err(); err != nil {
		t.Errorf("the context of another call: %v", err)
	}
	over()
	if got := context.Cause(ctx); !errors.Is(got, context.Canceled) {
		t.Errorf("after the handler: %v", got)
	}
	begin(4)
	gone(3, 9, 4)
	over() // has never asked for it
	if c.gone.Load() != 0 {
		t.Error("it is known of a call that is over")
	}
}
