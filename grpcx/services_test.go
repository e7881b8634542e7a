package grpcx

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// gRPC's own services are registered as with a grpc.Server.
func TestStandardServices(t *testing.T) {
	each(t, func(t *testing.T, k stack) {
		cc := k.start(t, stackOptions{register: func(r grpc.ServiceRegistrar) {
			registerInterop(r)
			healthgrpc.RegisterHealthServer(r, health.NewServer())
			reflection.Register(r.(reflection.GRPCServer))
		}})
		state, err := healthgrpc.NewHealthClient(cc).Check(limit(t), &healthgrpc.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil || state.Status != healthgrpc.HealthCheckResponse_SERVING {
			t.Error(state, err)
		}
		stream, err := reflectiongrpc.NewServerReflectionClient(cc).ServerReflectionInfo(limit(t), grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		list := &reflectiongrpc.ServerReflectionRequest_ListServices{}
		if err := stream.Send(&reflectiongrpc.ServerReflectionRequest{MessageRequest: list}); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, s := range r.GetListServicesResponse().GetService() {
			names[s.Name] = true
		}
		if !names["grpc.testing.TestService"] || !names["grpc.health.v1.Health"] || !names["grpc.reflection.v1.ServerReflection"] {
			t.Error(names)
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
	})
}
