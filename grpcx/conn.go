package grpcx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/client"
)

// Conn calls gRPC services over rdmad. It is a grpc.ClientConnInterface: give it to
// the NewXClient functions that protoc-gen-go-grpc generates. It is safe for
// concurrent use.
type Conn struct {
	// caller is what calls go through; nil if it changes, which is up to keeper then.
	caller  caller
	keeper  *keeper
	options dialOptions
	// shown is what interceptors are given in place of a connection; nil without
	// interceptors.
	shown  *grpc.ClientConn
	unary  grpc.UnaryInvoker
	stream grpc.Streamer
	closed atomic.Bool
	// seen are the methods that were there once.
	seen seen
}

func newConn(caller caller, o dialOptions) (*Conn, error) {
	c := &Conn{caller: caller, options: o}
	if len(o.unary)+len(o.streams) > 0 {
		shown, err := grpc.NewClient("passthrough:///"+o.node,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				return nil, errors.New("grpcx: this ClientConn only stands for a connection over rdmad: call the invoker or streamer")
			}))
		if err != nil {
			return nil, fmt.Errorf("grpcx: %w", err)
		}
		c.shown = shown
	}
	c.unary = chainUnaryClient(o.unary, func(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return c.invoke(ctx, method, req, reply, opts)
	})
	c.stream = chainStreamClient(o.streams, func(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return c.newStream(ctx, desc, method, opts)
	})
	return c, nil
}

// Close ends the use of the Conn: new calls fail with codes.Canceled. Calls under
// way go on, until their contexts or the client.Conn end; those of a Conn that was made by Dial end,
// with codes.Canceled too, and so does its attachment. It may be called more than once.
func (c *Conn) Close() error {
	again := c.closed.Swap(true)
	if c.keeper != nil {
		c.keeper.close()
	}
	if again || c.shown == nil {
		return nil
	}
	return c.shown.Close()
}

var errConnClosed = status.Error(codes.Canceled, "grpcx: the Conn is closed")

// pick returns what a call goes through.
func (c *Conn) pick(ctx context.Context, wait bool) (caller, error) {
	if c.keeper == nil {
		return c.caller, nil
	}
	return c.keeper.pick(ctx, wait)
}

// callError is callError for a call of the Conn, which may have ended it.
func (c *Conn) callError(ctx context.Context, err error) error {
	if c.keeper != nil && c.closed.Load() && ctx.Err() == nil && errors.Is(err, client.ErrClosed) {
		return failed(codes.Canceled, fmt.Errorf("grpcx: the Conn is closed: %w", err))
	}
	return callError(ctx, err)
}

// Invoke makes a unary call and returns after its end; generated code calls it. All
// errors have a status; see the package's documentation for those that rdmad causes.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.unary(ctx, method, args, reply, c.shown, c.combine(opts)...)
}

// NewStream begins a call that is not unary; generated code calls it. The end of ctx
// ends the call. As with gRPC, the caller must end ctx, or receive until an error,
// for what the call holds to be given back.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.stream(ctx, desc, c.shown, method, c.combine(opts)...)
}

func (c *Conn) combine(opts []grpc.CallOption) []grpc.CallOption {
	if len(c.options.calls) == 0 {
		return opts
	}
	return append(append(make([]grpc.CallOption, 0, len(c.options.calls)+len(opts)), c.options.calls...), opts...)
}

var unaryDesc = &grpc.StreamDesc{}

func (c *Conn) invoke(ctx context.Context, method string, args, reply any, opts []grpc.CallOption) error {
	for attempt := 0; ; attempt++ {
		s, err := c.begin(ctx, unaryDesc, method, opts)
		if err != nil {
			return err
		}
		if err = s.SendMsg(args); err == nil {
			err = s.recvMsg(reply)
		}
		// What was certainly not executed is tried once more, as by gRPC.
		if attempt == 0 && s.untouched(err) {
			s.release()
			continue
		}
		s.finish(err)
		return err
	}
}

func (c *Conn) newStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.begin(ctx, desc, method, opts)
	if err != nil {
		return nil, err
	}
	s.watch()
	if desc.ClientStreams {
		// The handler may have something to say before the first message.
		if err := s.sendHead(); err != nil {
			return nil, s.abort(err)
		}
	}
	return s, nil
}

// begin makes a call with its head. The stream is opened with the first frame.
func (c *Conn) begin(ctx context.Context, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (_ *clientStream, err error) {
	info, err := readOptions(opts)
	defer func() {
		if err != nil {
			info.finished(err)
		}
	}()
	if err != nil {
		return nil, err
	}
	if c.closed.Load() {
		return nil, errConnClosed
	}
	service, name, err := splitMethod(method)
	if err != nil {
		return nil, status.Error(codes.Unimplemented, "grpcx: "+err.Error())
	}
	via, err := c.pick(ctx, info.wait)
	if err != nil {
		return nil, err
	}
	md, err := info.metadata(ctx, via.target(), service)
	if err != nil {
		return nil, err
	}
	s := &clientStream{conn: c, via: via, desc: desc, service: service, method: name, info: info, caller: ctx, ctx: ctx, opened: make(chan struct{}), headed: make(chan struct{})}
	h := head{node: via.node(), codec: info.subtype, md: md}
	if s.head, err = appendBlock(nil, h.append); err != nil {
		return nil, status.Error(codes.Internal, "grpcx: "+err.Error())
	}
	return s, nil
}

// Between two looks for a service that is not there yet.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// open opens a stream with a first frame. With wait it waits until somebody serves the method, the
// liberator being whoever registers it, or the end of the context.
func (c *Conn) open(ctx context.Context, service, method string, wait bool, first []byte) (outgoing, error) {
	pause := firstPause
	var last caller
	var since time.Time // when the service was seen without the method, which it is about to have
	for attempt := 0; ; attempt++ {
		via, err := c.pick(ctx, wait)
		if err != nil {
			return nil, err
		}
		if via != last { // of another attachment nothing is known
			last, pause, since = via, firstPause, time.Time{}
		}
		out, err := via.open(ctx, service, method, first)
		if err == nil {
			c.seen.add(service, method)
			return out, nil
		}
		again := attempt == 0 && c.unsent(err)
		patience, err := c.openError(ctx, via, service, method, err)
		switch {
		case patience != registering:
			since = time.Time{}
		case since.IsZero():
			since, pause = time.Now(), firstPause
		}
		switch {
		case ctx.Err() != nil:
			return nil, callError(ctx, err)
		case again && !errors.Is(err, client.ErrClosed):
			continue
		case again: // that the attachment has ended takes a moment to be known
		case !wait, patience == notAtAll, patience == registering && time.Since(since) >= registering:
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, callError(ctx, ctx.Err())
		}
		pause = min(2*pause, lastPause)
	}
}

// unsent reports whether a stream that could not be opened is to be tried once more, as invoke does. What nobody serves the
// client has tried again itself.
func (c *Conn) unsent(err error) bool {
	if errors.Is(err, client.ErrMaybeExecuted) || errors.Is(err, client.ErrNoService) {
		return false
	}
	return errors.Is(err, client.ErrNotExecuted) || c.keeper != nil && errors.Is(err, client.ErrClosed)
}

// How long it is worth while to wait for what is not there.
const (
	notAtAll = 0
	// registering is how long a process may take to register all methods of a service.
	registering = 500 * time.Millisecond
	forever     = time.Duration(math.MaxInt64)
)

// openError is how long it may be worth while to wait after an open that has failed, and
// the status if nobody waits.
func (c *Conn) openError(ctx context.Context, via caller, service, method string, err error) (time.Duration, error) {
	if !errors.Is(err, client.ErrNoService) || ctx.Err() != nil {
		err = c.callError(ctx, err)
		// What may have been executed is not sent again, whatever it waits for. An attachment that has ended is
		// followed by another if the Conn sees to that.
		if status.Code(err) == codes.Unavailable && (c.keeper != nil || !errors.Is(err, client.ErrClosed)) && !errors.Is(err, client.ErrMaybeExecuted) {
			return forever, err
		}
		return notAtAll, err
	}
	switch c.absent(ctx, via, service, method, err) {
	case noMethod:
		return registering, failed(codes.Unimplemented, fmt.Errorf("unknown method %s for service %s: %w", method, service, err))
	case noService:
		if !c.seen.service(service) {
			return forever, failed(codes.Unimplemented, fmt.Errorf("unknown service %s: %w", service, err))
		}
	}
	return forever, failed(codes.Unavailable, err)
}

// absent says what is not there, after an open that has failed with err.
func (c *Conn) absent(ctx context.Context, via caller, service, method string, err error) absence {
	if refusedStream(err) {
		return noMethod // for gRPC, whatever is served by its name
	}
	failed := time.Now()
	found := via.absent(ctx, service, method, time.Time{})
	if found != noMethod || !c.seen.method(service, method) {
		return found
	}
	// It was there, and perhaps all of the service is gone since somebody has looked last.
	if found = via.absent(ctx, service, method, failed); found == noMethod {
		c.seen.forget(service, method) // or each call would look
	}
	return found
}
