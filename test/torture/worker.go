package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/client"
)

const (
	// again is the pause before an attempt is repeated.
	again = 5 * time.Millisecond
	// thinking is the most that a caller waits between two calls.
	thinking = 2 * time.Millisecond
)

// worker is one process that makes calls.
type worker struct {
	args   *roleArgs
	board  *board
	ledger *ledger
	// finishing is set when no more calls are to be made.
	finishing atomic.Bool
}

// workerRole makes calls of all styles until its standard input ends; then it waits for
// the outcome of each, says so, and lives on until SIGTERM, so that what an idle
// worker has can be looked at.
func workerRole(ctx context.Context, args *roleArgs) error {
	b, err := openBoard(args.Dir)
	if err != nil {
		return err
	}
	w := &worker{args: args, board: b, ledger: &ledger{dir: args.Dir, instance: args.Instance}}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		w.finishing.Store(true)
	}()
	for n := 0; !w.finishing.Load() && ctx.Err() == nil; n++ {
		conn, err := client.Attach(ctx, args.Socket, client.Name(fmt.Sprintf("worker-%d", args.Instance)))
		if err != nil {
			time.Sleep(again)
			n-- // has not been attached
			continue
		}
		if n > 0 {
			b.add(boardReattached)
		}
		if err := w.attached(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// attached makes calls until the connection ends or the worker has finished.
func (w *worker) attached(ctx context.Context, conn *client.Conn) error {
	var all sync.WaitGroup
	errs := make(chan error, w.args.Depth)
	for i := range w.args.Depth {
		all.Go(func() { errs <- w.caller(conn, i).run(ctx) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	select {
	case <-conn.Done():
	default:
		// Finished, and every call has its outcome.
		if _, err := fmt.Println("finished"); err != nil {
			return err
		}
		w.idle(ctx, conn)
	}
	return conn.Close()
}

// ticking is the time between two calls of an idle worker.
const ticking = 50 * time.Millisecond

// idle makes a call now and then, until ctx ends. Answers that come too late for whoever
// wanted them give their slots back when the library looks for others.
func (w *worker) idle(ctx context.Context, conn *client.Conn) {
	for ctx.Err() == nil {
		for _, node := range []string{"a", "b"} {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = conn.Call(soon, node+"/load/tick", nil) // for its own sake
			cancel()
		}
		time.Sleep(ticking)
	}
}

// caller is one goroutine of a worker.
type caller struct {
	*worker
	// number is different for each of the worker's.
	number  int
	conn    *client.Conn
	queue   *client.Queue
	rng     *rand.Rand
	methods map[string]*client.Method
	request []byte
	region  *client.Region
}

func (w *worker) caller(conn *client.Conn, i int) *caller {
	return &caller{
		worker: w, number: i, conn: conn, queue: conn.NewQueue(), methods: map[string]*client.Method{}, request: make([]byte, w.args.Most),
		rng: rand.New(rand.NewPCG(w.args.Seed, uint64(i))),
	}
}

// run makes one call after the other.
func (c *caller) run(ctx context.Context) error {
	defer func() {
		if c.region != nil {
			_ = c.region.Free()
		}
	}()
	for !c.finishing.Load() && ctx.Err() == nil {
		select {
		case <-c.conn.Done():
			return nil
		default:
		}
		if err := c.one(); err != nil {
			return err
		}
		if c.args.Witness {
			time.Sleep(thinking / 8)
		} else {
			time.Sleep(rand.N(thinking))
		}
	}
	return nil
}

// one makes what one style makes of it. An error is of the harness.
func (c *caller) one() error {
	node := c.args.Node
	if c.args.Witness || c.rng.IntN(4) > 0 {
		node = c.args.Peer
	}
	s := styleCall
	if !c.args.Witness {
		s = style(c.rng.IntN(int(styles)))
	}
	method := "work"
	if s == styleStream {
		method = "stream"
	}
	since, remote := now(), node != c.args.Node
	m, err := c.method(node + "/load/" + method)
	if err != nil {
		return c.unmade(s, remote, since, err)
	}
	return stylesTable[s].make(c, m, s, remote)
}

// method looks a target up, for a limited time.
func (c *caller) method(target string) (*client.Method, error) {
	if m := c.methods[target]; m != nil {
		return m, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m, err := c.conn.Method(ctx, target)
	if err == nil {
		c.methods[target] = m
	}
	return m, err
}

// call is a call that has been entered in the ledger.
type call struct {
	head
	record record
	remote bool
	began  int64
	// phase is what the harness did then, if it is the witness's.
	phase phase
	bytes []byte
}

// begin enters a call and makes its request, which is valid until the next one of this
// caller unless own.
func (c *caller) begin(s style, remote, own bool) (*call, error) {
	r, err := c.ledger.begin(s, remote)
	if err != nil {
		return nil, err
	}
	c.board.add(boardCalls)
	k := &call{record: r, remote: remote, began: int64(r.word(entryBegan).Load())}
	if c.args.Witness {
		c.board.opened(k.began) // before the phase is looked at: the end of a turn finds the call, or the call is of a later one
		k.phase = phase(c.board.get(boardPhase))
	}
	k.head = head{book: r.book.number, entry: r.entry, length: headSize + c.size(), answer: c.size()}
	switch n := c.rng.IntN(100); {
	case c.args.Witness:
	case n < 5:
		k.micros = c.rng.IntN(5000)
	case n < 7:
		k.flags = headFail
	}
	k.bytes = c.request[:k.length]
	if own {
		k.bytes = make([]byte, k.length)
	}
	k.encode(k.bytes)
	return k, nil
}

// unmade enters a call that could not be made, because what it takes was asked for at a time and refused.
func (c *caller) unmade(s style, remote bool, since int64, err error) error {
	k, ledgerErr := c.begin(s, remote, false)
	if ledgerErr != nil {
		return ledgerErr
	}
	k.record.word(entryBegan).Store(uint64(since))
	k.flags = 0 // no handler has been asked for anything
	if errors.Is(err, client.ErrNotExecuted) || errors.Is(err, context.DeadlineExceeded) {
		c.endAs(k, outRefused, err) // nobody serves it at the moment, or nobody says so
		return nil
	}
	c.end(k, nil, err)
	return nil
}

// size chooses a size: mostly small, now and then the largest.
func (c *caller) size() int {
	most := c.args.Most - headSize
	switch n := c.rng.IntN(20); {
	case c.args.Witness:
		return 200
	case n == 0:
		return 0
	case n < 14:
		return c.rng.IntN(1000)
	case n < 19:
		return c.rng.IntN(min(most, 16<<10))
	}
	return c.rng.IntN(most)
}

// end enters the outcome of a call.
func (c *caller) end(k *call, answer []byte, err error) {
	o := outcomeOf(err)
	switch {
	case o == outOK && (k.flags&headFail != 0 || !k.right(answer)):
		o = outWrong
	case o == outFailed && k.flags&headFail == 0:
		o = outUnexpected
	}
	c.endAs(k, o, err)
}

// endAs enters an outcome.
func (c *caller) endAs(k *call, o outcome, err error) {
	k.record.end(o)
	c.board.outcome(o)
	switch {
	case o == outUnexpected || o == outWrong:
		fmt.Fprintf(os.Stderr, "worker %d: %v of book %d entry %d: %v\n", c.args.Instance, o, k.book, k.entry, err)
	case o == outOK || o == outFailed:
		c.board.answered(nodeIndex(c.args.Node), k.remote, k.began)
	}
	if c.args.Witness && c.board.closed(k.began) && o == outOK {
		c.board.called(k.phase, time.Duration(int64(k.record.word(entryEnded).Load())-k.began))
	}
	if o == outRefused {
		clear(c.methods) // look again
		time.Sleep(again)
	}
}
