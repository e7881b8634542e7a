package grpcx

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// BenchmarkUnary makes unary calls of 64 bytes to another process, over rdmad on two
// nodes, over rdmad within one node, and over plain gRPC: one after the other, and 64 at
// a time. Compare the medians of several runs (-count), which take turns.
func BenchmarkUnary(b *testing.B) {
	nodeA, nodeB := daemontest.Pair(b, "")
	local := b.TempDir() + "/grpc.sock"
	tcp := daemontest.Spawn(b, "echo", nodeB.Socket, local).Line()
	conns := map[string]grpc.ClientConnInterface{
		"rdmad": dialFrom(b, nodeA, dialOptions{node: "b"}),
		"local": dialFrom(b, nodeB, dialOptions{node: "b"}),
		"tcp":   dialPlain(b, tcp),
		"unix":  dialPlain(b, "unix:"+local),
	}
	for _, depth := range []int{1, 64} {
		for _, name := range []string{"rdmad", "local", "tcp", "unix"} {
			b.Run(fmt.Sprintf("%s-%d", name, depth), func(b *testing.B) {
				unary(b, testgrpc.NewTestServiceClient(conns[name]), depth)
			})
		}
	}
}

func dialPlain(b *testing.B, target string) *grpc.ClientConn {
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cc.Close() })
	return cc
}

// unary makes b.N calls, so many at a time, and reports the rate and percentiles.
func unary(b *testing.B, c testgrpc.TestServiceClient, depth int) {
	req := &testgrpc.SimpleRequest{Payload: payload(64)}
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range depth {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				begin := time.Now()
				if _, err := c.UnaryCall(context.Background(), req); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(begin)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
