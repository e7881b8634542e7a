package grpcx

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/rdmad/rdmad/client"
)

// statusError is the status of a call that did not get one from its handler,
// because of an error of rdmad's: errors.Is and errors.As find that.
type statusError struct {
	status *status.Status
	cause  error
}

// Error is as of any status.
func (e *statusError) Error() string { return e.status.Err().Error() }

// GRPCStatus makes package status see the status.
func (e *statusError) GRPCStatus() *status.Status { return e.status }

// Unwrap returns the error of rdmad's.
func (e *statusError) Unwrap() error { return e.cause }

// failed makes a status of an error of rdmad's.
func failed(code codes.Code, err error) error {
	return &statusError{status: status.New(code, err.Error()), cause: err}
}

// errors of contexts, as grpc-go words them.
var (
	errCanceled = status.Error(codes.Canceled, context.Canceled.Error())
	errDeadline = status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
)

// callError is the status of a call that rdmad has failed. If its context has
// ended that is why, whatever the error says.
func callError(ctx context.Context, err error) error {
	switch ctx.Err() {
	case context.Canceled:
		return errCanceled
	case context.DeadlineExceeded:
		return errDeadline
	}
	if remote := (*client.RemoteError)(nil); errors.As(err, &remote) {
		if st := parseLateStatus(remote.Text); st != nil {
			return &statusError{status: st, cause: err}
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, client.ErrDeadline):
		// The daemon has noticed first.
		return errDeadline
	case errors.Is(err, context.Canceled):
		return errCanceled
	case errors.Is(err, client.ErrTooLarge), errors.Is(err, client.ErrBackpressure), errors.Is(err, client.ErrLimit):
		return failed(codes.ResourceExhausted, err)
	case errors.Is(err, client.ErrRemote):
		// The handler's end of the stream has failed without a status: it panicked,
		// or is not of this package.
		return failed(codes.Unknown, err)
	case errors.Is(err, client.ErrNotExecuted), errors.Is(err, client.ErrMaybeExecuted),
		errors.Is(err, client.ErrNoService), errors.Is(err, client.ErrClosed):
		return failed(codes.Unavailable, err)
	case errors.Is(err, client.ErrInvalid):
		return failed(codes.Unimplemented, err)
	case errors.Is(err, errFrame):
		return failed(codes.Internal, err)
	}
	return failed(codes.Unknown, err)
}

// lateStatus is the status of a call whose context has ended at the handler's end, which
// cannot send frames any more. It becomes the error of the stream: the caller may not
// have noticed, or may not be the one who has ended it.
type lateStatus struct{ status *status.Status }

// lateText is what the text of such an error begins with; the code and the message
// follow.
const lateText = "grpcx: status "

// Error is what parseLateStatus reads.
func (l lateStatus) Error() string {
	return fmt.Sprintf("%s%d: %s", lateText, l.status.Code(), l.status.Message())
}

// parseLateStatus reads the text of a lateStatus, which may be cut short. It returns nil
// for any other text.
func parseLateStatus(text string) *status.Status {
	rest, ok := strings.CutPrefix(text, lateText)
	number, message, found := strings.Cut(rest, ": ")
	code, err := strconv.ParseUint(number, 10, 32)
	if !ok || !found || err != nil || code == 0 {
		return nil
	}
	return status.New(codes.Code(code), message)
}

// handlerStatus is the status of what a handler returned, as gRPC has it.
func handlerStatus(err error) *status.Status {
	if err == nil {
		return nil
	}
	if st, ok := status.FromError(err); ok {
		return st
	}
	return status.FromContextError(err)
}

// ending is how a call ended.
type ending struct {
	status  *status.Status // nil for OK
	trailer metadata.MD
}

func (e *ending) append(b []byte) ([]byte, error) {
	var text []byte
	if e.status != nil && e.status.Code() != codes.OK {
		p := e.status.Proto()
		p.Message = strings.ToValidUTF8(p.Message, "\uFFFD")
		var err error
		if text, err = proto.Marshal(p); err != nil {
			return b, fmt.Errorf("status: %w", err)
		}
	}
	return appendMetadata(appendText(b, string(text)), e.trailer)
}

// parseEnding reads the block of a status. The trailer is not nil.
func parseEnding(block []byte) (e ending, err error) {
	c := cursor{s: string(block)}
	text := c.text(maxBlock)
	if e.trailer, err = readMetadata(&c); err != nil {
		return ending{}, err
	}
	if err := c.end("a status"); err != nil {
		return ending{}, err
	}
	if text == "" {
		return e, nil
	}
	p := new(spb.Status)
	if err := proto.Unmarshal([]byte(text), p); err != nil {
		return ending{}, fmt.Errorf("%w: status: %w", errFrame, err)
	}
	if p.Code != int32(codes.OK) {
		e.status = status.FromProto(p)
	}
	return e, nil
}
