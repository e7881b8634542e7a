package grpcx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// jsonCodec is a codec of the first kind.
type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
func (jsonCodec) Name() string                       { return "json-test" }
func (jsonCodec) String() string                     { return "json-test" }

func init() { encoding.RegisterCodec(jsonCodec{}) }

// echoSize answers with the size of what came.
func echoSize() *scripted {
	return &scripted{unary: func(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		return &testgrpc.SimpleResponse{Payload: payload(len(r.Payload.GetBody()))}, nil
	}}
}

func TestCodecs(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		cc := k.start(t, stackOptions{register: echoSize().register})
		c := testgrpc.NewTestServiceClient(cc)
		for name, o := range map[string]grpc.CallOption{
			"subtype": grpc.CallContentSubtype("json-test"),
			"forced":  grpc.ForceCodec(jsonCodec{}),
			"proto":   grpc.ForceCodecV2(encoding.GetCodecV2("proto")),
		} {
			r, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(7)}, o)
			if err != nil || len(r.GetPayload().GetBody()) != 7 {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.CallContentSubtype("nobody's"))
		want(t, err, codes.Internal, "no codec registered")
		err = cc.Invoke(limit(t), "/grpc.testing.TestService/UnaryCall", 7, new(int))
		want(t, err, codes.Internal, "error while marshaling")
	})
}

func TestUnknownCodecOfCaller(t *testing.T) {
	_, c := fake(t, stackOptions{register: echoSize().register})
	_, err := testgrpc.NewTestServiceClient(c).UnaryCall(limit(t), &testgrpc.SimpleRequest{},
		grpc.ForceCodec(jsonCodec{}), grpc.CallContentSubtype("only-here"))
	want(t, err, codes.Unimplemented, "no codec registered")
}

func TestRefusedOptions(t *testing.T) {
	_, c := fake(t, stackOptions{register: echoSize().register})
	for text, o := range map[string]grpc.CallOption{
		"UseCompressor": grpc.UseCompressor("gzip"),
		"CallAuthority": grpc.CallAuthority("x"),
		//lint:ignore SA1019 that it is old is why it is refused
		"CallCustomCodec": grpc.CallCustomCodec(jsonCodec{}),
		"64 bytes":        grpc.CallContentSubtype(strings.Repeat("x", 64)),
	} {
		if text == "64 bytes" {
			o = grpc.ForceCodec(longCodec{})
		}
		finished := false
		_, err := testgrpc.NewTestServiceClient(c).UnaryCall(limit(t), &testgrpc.SimpleRequest{}, o, grpc.OnFinish(func(error) { finished = true }))
		want(t, err, codes.Unimplemented, text)
		if !finished {
			t.Error("OnFinish was not called")
		}
	}
}

// longCodec has a name that no head can have.
type longCodec struct{ jsonCodec }

func (longCodec) Name() string { return strings.Repeat("x", 64) }

// token is per-RPC credentials.
type token struct {
	secure bool
	err    error
}

func (c token) GetRequestMetadata(_ context.Context, uri ...string) (map[string]string, error) {
	return map[string]string{"Authorization": "for " + uri[0]}, c.err
}
func (c token) RequireTransportSecurity() bool { return c.secure }

// authorized answers a unary call with the values of "authorization" in its metadata.
func authorized() *scripted {
	return &scripted{unary: func(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		return &testgrpc.SimpleResponse{Username: strings.Join(md["authorization"], ",")}, nil
	}}
}

// named is per-RPC credentials of that text.
type named string

func (c named) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"Authorization": string(c)}, nil
}
func (named) RequireTransportSecurity() bool { return false }

func TestCredentialsAudience(t *testing.T) {
	_, conn := fake(t, stackOptions{register: authorized().register})
	r, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.PerRPCCredentials(token{}))
	if err != nil || r.Username != "for rdmad:///grpc.testing.TestService" {
		t.Error(r, err)
	}
}

// The status of a call whose credentials fail is theirs if it is one that they may have, and INTERNAL otherwise.
func TestCredentialsThatFail(t *testing.T) {
	restricted := []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.DataLoss}
	each(t, func(t *testing.T, k stack) {
		c := authorized().client(t, k, stackOptions{})
		call := func(ctx context.Context, creds token) error {
			_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.PerRPCCredentials(creds))
			return err
		}
		want(t, call(limit(t), token{secure: true}), codes.Unauthenticated, "cannot send secure credentials")
		for _, err := range []error{errors.New("no token"), context.Canceled} {
			want(t, call(limit(t), token{err: err}), codes.Internal, "transport: per-RPC creds failed due to error: "+err.Error())
		}
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			for _, cause := range []error{status.Error(code, "no token"), fmt.Errorf("wrapped: %w", status.Error(code, "no token"))} {
				err := call(limit(t), token{err: cause})
				if slices.Contains(restricted, code) {
					want(t, err, codes.Internal, "transport: received per-RPC creds error with illegal status: "+cause.Error())
				} else {
					want(t, err, code, "no token")
				}
			}
		}
		ended, cancel := context.WithCancel(limit(t))
		cancel()
		want(t, call(ended, token{err: context.Canceled}), codes.Canceled, "context canceled")
	})
}

// Of several credentials the last ones are sent, and none if these are nil.
func TestCredentialsTheLastCount(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		c := authorized().client(t, k, stackOptions{})
		for expect, options := range map[string][]grpc.CallOption{
			"one": {grpc.PerRPCCredentials(named("one"))},
			"two": {grpc.PerRPCCredentials(token{secure: true}), grpc.PerRPCCredentials(named("one")), grpc.PerRPCCredentials(named("two"))},
			"":    {grpc.PerRPCCredentials(named("one")), grpc.PerRPCCredentials(nil)},
		} {
			r, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, options...)
			if err != nil || r.Username != expect {
				t.Errorf("%v, %v, want %q", r, err, expect)
			}
		}
	})
}

// Who takes only the first value takes that of the credentials.
func TestCredentialsBeforeMetadata(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		c := authorized().client(t, k, stackOptions{})
		ctx := metadata.AppendToOutgoingContext(limit(t), "authorization", "mine", "authorization", "too")
		r, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.PerRPCCredentials(named("theirs")))
		if err != nil || r.Username != "theirs,mine,too" {
			t.Error(r, err)
		}
	})
}

func TestDefaultCallOptions(t *testing.T) {
	n, _ := fake(t, stackOptions{register: echoSize().register})
	o := dialOptions{}
	WithDefaultCallOptions(grpc.MaxCallSendMsgSize(10))(&o)
	conn, err := newConn(n, o)
	if err != nil {
		t.Fatal(err)
	}
	c := testgrpc.NewTestServiceClient(conn)
	_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(10)})
	want(t, err, codes.ResourceExhausted, "larger than max")
	if _, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: payload(10)}, grpc.MaxCallSendMsgSize(100)); err != nil {
		t.Error(err)
	}
}
