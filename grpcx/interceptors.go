package grpcx

import (
	"context"

	"google.golang.org/grpc"
)

// chainUnaryClient puts interceptors around a call, the first one outermost.
func chainUnaryClient(all []grpc.UnaryClientInterceptor, last grpc.UnaryInvoker) grpc.UnaryInvoker {
	if len(all) == 0 {
		return last
	}
	next := chainUnaryClient(all[1:], last)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return all[0](ctx, method, req, reply, cc, next, opts...)
	}
}

func chainStreamClient(all []grpc.StreamClientInterceptor, last grpc.Streamer) grpc.Streamer {
	if len(all) == 0 {
		return last
	}
	next := chainStreamClient(all[1:], last)
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return all[0](ctx, desc, cc, method, next, opts...)
	}
}

// chainUnaryServer makes one interceptor of many, or nil of none.
func chainUnaryServer(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) == 0 {
		return nil
	}
	rest := chainUnaryServer(all[1:])
	if rest == nil {
		return all[0]
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return all[0](ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return rest(ctx, req, info, handler)
		})
	}
}

func chainStreamServer(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(all) == 0 {
		return nil
	}
	rest := chainStreamServer(all[1:])
	if rest == nil {
		return all[0]
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return all[0](srv, ss, info, func(srv any, ss grpc.ServerStream) error {
			return rest(srv, ss, info, handler)
		})
	}
}
