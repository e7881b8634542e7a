package grpcx

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/client"
)

// Dial makes calls go over an attachment of the Conn's own, to the daemon that listens on socket; empty means what it does for
// client.Attach. It returns at once, whether or not a daemon runs there. Whenever the Conn is not attached, because the daemon
// has not started yet or has gone, it attaches in the background: at once, and then after pauses of up to some 1.2 s.
//
// A call that begins meanwhile waits for the attempt under way, and fails with codes.Unavailable if the last one has failed; with
// grpc.WaitForReady it waits until the Conn is attached or the context ends. Calls under way end with the attachment, each with
// one status. What was certainly not executed is tried once more, as ever.
//
// The error is an ErrInvalid for a node's name that cannot be one. The caller must Close the Conn.
func Dial(socket string, opts ...DialOption) (*Conn, error) {
	o, err := readDialOptions(opts)
	if err != nil {
		return nil, err
	}
	c, err := newConn(nil, o)
	if err != nil {
		return nil, err
	}
	c.keeper = newKeeper(socket, o)
	go c.keeper.run()
	return c, nil
}

// keeper keeps a Conn attached.
type keeper struct {
	socket, node string
	options      []client.Option
	// life ends with Close, and over is closed when nothing of the keeper is left.
	life context.Context
	end  context.CancelFunc
	over chan struct{}

	mu sync.Mutex
	// caller has the attachment; nil while there is none.
	caller *rdmadCaller
	// err is why the last attempt to attach has failed; nil if there was none since the last attachment.
	err error
	// changed is closed, and another one takes its place, when caller or err change.
	changed chan struct{}
}

func newKeeper(socket string, o dialOptions) *keeper {
	k := &keeper{socket: socket, node: o.node, options: o.attach, over: make(chan struct{}), changed: make(chan struct{})}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// run attaches, again and again, until close.
func (k *keeper) run() {
	defer close(k.over)
	for pause := firstPause; k.life.Err() == nil; {
		begun := time.Now()
		if err := k.attached(); err != nil {
			k.set(nil, err)
		} else if time.Since(begun) >= lastPause {
			pause = firstPause
			continue
		}
		// Not to the moment: the processes of a node would all come at once when its daemon starts. One that ends
		// attachments as soon as they are made is no better than none.
		select {
		case <-time.After(pause*4/5 + rand.N(pause*2/5)):
		case <-k.life.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// attached is the life of one attachment. The error says why there was none.
func (k *keeper) attached() error {
	conn, err := client.Attach(k.life, k.socket, k.options...)
	if err != nil {
		return err
	}
	k.set(newCaller(conn, k.node), nil)
	select {
	case <-conn.Done():
	case <-k.life.Done():
	}
	k.set(nil, nil)
	// Calls under way have their outcome, or get it now. What the error is about is over.
	_ = conn.Close()
	return nil
}

func (k *keeper) set(c *rdmadCaller, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.caller, k.err = c, err
	close(k.changed)
	k.changed = make(chan struct{})
}

// pick returns what calls go through. While there is nothing it waits, with wait until there is, and otherwise for the attempt
// under way, or the next one if there was none since the last attachment. The liberator is run, or close.
func (k *keeper) pick(ctx context.Context, wait bool) (caller, error) {
	for {
		k.mu.Lock()
		c, err, changed := k.caller, k.err, k.changed
		k.mu.Unlock()
		switch {
		case k.life.Err() != nil:
			return nil, errConnClosed
		case c != nil && !c.over():
			return c, nil
		case err != nil && !wait:
			return nil, failed(codes.Unavailable, unattached(err))
		}
		select {
		case <-changed:
		case <-k.life.Done():
		case <-ctx.Done():
			if err == nil {
				return nil, callError(ctx, ctx.Err())
			}
			// Who has waited in vain wants to know for what.
			err = fmt.Errorf("%w: %w", ctx.Err(), unattached(err))
			return nil, failed(status.Code(callError(ctx, ctx.Err())), err)
		}
	}
}

// over reports whether the attachment has ended, which the keeper may not have noticed.
func (c *rdmadCaller) over() bool {
	select {
	case <-c.conn.Done():
		return true
	default:
		return false
	}
}

// unattached is the error of a call that has not left this process.
func unattached(err error) error {
	return fmt.Errorf("grpcx: %w: not attached: %w", client.ErrNotExecuted, err)
}

// close ends the attachment, and returns when nothing is left.
func (k *keeper) close() {
	k.end()
	<-k.over
}
