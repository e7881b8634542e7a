// Package grpcx runs gRPC over rdmad: what protoc-gen-go-grpc generates works
// unchanged, with a Conn in place of a grpc.ClientConn and a Server in place of a
// grpc.Server.
//
//	conn, err := grpcx.Dial("", grpcx.Node("b"))
//	if err != nil { ... }
//	defer conn.Close()
//	reply, err := pb.NewGreeterClient(conn).SayHello(ctx, &pb.HelloRequest{Name: "world"}, grpc.WaitForReady(true))
//
//	rdma, err := server.Attach(ctx, "")
//	if err != nil { ... }
//	srv := grpcx.NewServer(rdma)
//	pb.RegisterGreeterServer(srv, impl)
//	err = srv.Serve(ctx)
//
// Dial keeps a Conn attached, whatever becomes of the daemon. Serve returns when the daemon goes; examples/greeter has a
// loop that goes on with the next one.
//
// The method "/package.Service/Method" of gRPC is the method "Method" of rdmad's
// service "package.Service"; each has at most 63 letters, digits, dots, dashes or
// underscores. Every process that serves a service gets its share of the calls.
//
// # What works
//
// Calls of all four kinds, metadata with values of any bytes under keys that end in
// "-bin", statuses with details, deadlines, cancellation, chained interceptors on both
// sides, registered and forced codecs, grpc.SetHeader, SendHeader, SetTrailer and
// Method, MethodFromServerStream, peers in contexts, and on the server GetServiceInfo,
// so that gRPC's health and reflection services can be registered. The limits of
// messages are gRPC's: 4 MiB received if nothing else is said.
//
// Of call options these have their effect: Header, Trailer, Peer, OnFinish,
// WaitForReady, MaxCallRecvMsgSize, MaxCallSendMsgSize, CallContentSubtype, ForceCodec,
// ForceCodecV2, and PerRPCCredentials whose credentials do not require transport
// security, because there is none. UseCompressor, CallAuthority and CallCustomCodec are
// refused with codes.Unimplemented; UseCompressor("identity") asks for nothing. Others,
// also those that interceptors embed grpc.EmptyCallOption in, are ignored.
//
// # What differs
//
// Messages are not compressed. There is no service config, no balancer, no keepalive,
// no channelz, no stats handler and no binary log. The incoming metadata has no
// ":authority", "content-type" and "user-agent". A handler that panics ends its call
// with codes.Unknown and not the program. RegisterService does not end the program
// either; see Server.Err.
//
// # Statuses of rdmad's errors
//
// A call that has no status from its handler gets one from rdmad's error, which
// errors.Is and errors.As still find.
//
//	end of the context        DEADLINE_EXCEEDED, CANCELED
//	ErrNoService              UNIMPLEMENTED if the node takes requests and serves anything,
//	                          but not the method, or not the service and never did; else
//	                          UNAVAILABLE, also for what is served and not reached
//	ErrNotExecuted            UNAVAILABLE, after a second attempt
//	ErrMaybeExecuted          UNAVAILABLE, as a connection that is lost in gRPC
//	ErrClosed                 UNAVAILABLE; CANCELED if it was Close of a Conn of Dial
//	not attached (Dial)       UNAVAILABLE, with the error of client.Attach and ErrNotExecuted
//	ErrBackpressure, ErrLimit RESOURCE_EXHAUSTED
//	ErrTooLarge               RESOURCE_EXHAUSTED
//	ErrRemote                 UNKNOWN: the handler panicked
//	ErrInvalid                UNIMPLEMENTED: rdmad cannot have such a name
//	a malformed frame         INTERNAL
//
// Who repeats calls that end with UNAVAILABLE should ask errors.Is for
// client.ErrNotExecuted if they are not idempotent.
//
// # Frames
//
// A call is a stream of rdmad, whose messages are frames. A frame is a byte of flags and
// what they announce, in this order:
//
//	1  head     4 bytes of length, and the block
//	2  status   4 bytes of length, and the block; from the handler, with the last frame
//	4  message  all that follows, encoded by the codec
//	8  last     nothing; from the caller: there are no more frames
//
// The first frame of either side has a head, no other has. Blocks have at most 64 KiB.
// Lengths are little-endian; within blocks, numbers are varints as in Protocol Buffers,
// and texts have their length before them.
//
//	head:     node text, codec text, metadata
//	status:   text, metadata
//	metadata: number of values (at most 1024), and for each: key text, value text
//
// The node is where the sender runs, and the codec that of all messages, empty for
// "proto"; only callers name one. The text of a status is a google.rpc.Status, or empty
// for OK. The deadline is the stream's. A handler's end whose context has ended cannot send
// frames: the error of the stream is then "grpcx: status", the code, and the message.
package grpcx
