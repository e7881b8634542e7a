package grpcx

import (
	"context"
	"fmt"
	"math"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// defaultMaxRecv is the largest message that is received without an option that says
// otherwise, as in gRPC.
const defaultMaxRecv = 4 << 20

// callInfo is what the options of a call say.
type callInfo struct {
	codec   encoding.CodecV2
	subtype string
	maxRecv int
	maxSend int
	wait    bool // for the service to be there
	// creds are those of the last option that names some, nil for none.
	creds credentials.PerRPCCredentials

	headers  []*metadata.MD
	trailers []*metadata.MD
	peers    []*peer.Peer
	finish   []func(error)
}

// readOptions reads the options of a call. Those that would need what rdmad does not
// have are refused; see the package's documentation.
func readOptions(options []grpc.CallOption) (*callInfo, error) {
	i := &callInfo{maxRecv: defaultMaxRecv, maxSend: math.MaxInt32}
	var failure error
	for _, o := range options {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			i.headers = append(i.headers, o.HeaderAddr)
		case grpc.TrailerCallOption:
			i.trailers = append(i.trailers, o.TrailerAddr)
		case grpc.PeerCallOption:
			i.peers = append(i.peers, o.PeerAddr)
		case grpc.OnFinishCallOption:
			i.finish = append(i.finish, o.OnFinish)
		case grpc.FailFastCallOption:
			i.wait = !o.FailFast
		case grpc.MaxRecvMsgSizeCallOption:
			i.maxRecv = o.MaxRecvMsgSize
		case grpc.MaxSendMsgSizeCallOption:
			i.maxSend = o.MaxSendMsgSize
		case grpc.ContentSubtypeCallOption:
			i.subtype = o.ContentSubtype
		case grpc.ForceCodecCallOption:
			i.codec = codecV1{o.Codec}
		case grpc.ForceCodecV2CallOption:
			i.codec = o.CodecV2
		case grpc.PerRPCCredsCallOption:
			i.creds = o.Creds
		case grpc.CompressorCallOption:
			if o.CompressorType != "" && o.CompressorType != encoding.Identity {
				failure = refuse("grpc.UseCompressor(%q)", o.CompressorType)
			}
		case grpc.AuthorityOverrideCallOption:
			failure = refuse("grpc.CallAuthority(%q)", o.Authority)
		case grpc.CustomCodecCallOption:
			failure = refuse("grpc.CallCustomCodec")
		}
	}
	if failure == nil {
		failure = i.chooseCodec()
	}
	return i, failure
}

func refuse(format string, args ...any) error {
	return status.Errorf(codes.Unimplemented, "grpcx: %s is not supported over rdmad", fmt.Sprintf(format, args...))
}

func (i *callInfo) chooseCodec() error {
	if i.codec != nil {
		if i.subtype == "" {
			i.subtype = strings.ToLower(i.codec.Name())
		}
	} else if i.codec = codecOf(i.subtype); i.codec == nil {
		return status.Errorf(codes.Internal, "no codec registered for content-subtype %s", i.subtype)
	}
	if i.subtype == proto.Name {
		i.subtype = ""
	}
	if len(i.subtype) > maxName {
		return refuse("a content-subtype of %d bytes", len(i.subtype))
	}
	return nil
}

// metadata returns the metadata to send: that of the context and what the
// credentials of the call say.
func (i *callInfo) metadata(ctx context.Context, node, service string) (metadata.MD, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	if err := checkMetadata(md); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if i.creds == nil {
		return md, nil
	}
	more, err := i.secrets(ctx, "rdmad://"+node+"/"+service)
	if err != nil {
		return nil, err
	}
	if md == nil {
		md = metadata.MD{}
	}
	for k, v := range more {
		k = strings.ToLower(k)
		if err := checkPair(k, v); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		md[k] = append([]string{v}, md[k]...) // before those of the context, as gRPC does
	}
	return md, nil
}

// secrets asks the credentials of the call, if they may be sent, what to send.
func (i *callInfo) secrets(ctx context.Context, audience string) (map[string]string, error) {
	if ctx.Err() != nil {
		return nil, callError(ctx, ctx.Err()) // or what the credentials make of it would be the status
	}
	if i.creds.RequireTransportSecurity() {
		return nil, status.Error(codes.Unauthenticated, "grpcx: cannot send secure credentials over rdmad, which does not encrypt")
	}
	more, err := i.creds.GetRequestMetadata(ctx, audience)
	if err != nil {
		return nil, credentialsError(err)
	}
	return more, nil
}

// credentialsError is the status of a call whose credentials have failed, with the codes and texts of
// grpc-go: statuses that only a service may give become INTERNAL.
func credentialsError(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return status.Errorf(codes.Internal, "transport: per-RPC creds failed due to error: %v", err)
	}
	switch st.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		return status.Errorf(codes.Internal, "transport: received per-RPC creds error with illegal status: %v", err)
	}
	return err
}

// codecOf returns the registered codec of that name, or nil.
func codecOf(name string) encoding.CodecV2 {
	if name == "" {
		name = proto.Name
	}
	if c := encoding.GetCodecV2(name); c != nil {
		return c
	}
	if c := encoding.GetCodec(name); c != nil {
		return codecV1{c}
	}
	return nil
}
