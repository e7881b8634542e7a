package grpcx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// startNodes serves on node b of two and calls from node a.
func startNodes(t *testing.T, o stackOptions) grpc.ClientConnInterface {
	a, b := daemontest.Pair(t, "")
	serveOn(t, b, o.register, o.server()...)
	d := o.dial()
	d.node = "b"
	return dialFrom(t, a, d)
}

// serveOn serves on a node until the test ends.
func serveOn(t testing.TB, n *daemontest.Node, register func(grpc.ServiceRegistrar), opts ...ServerOption) *Server {
	t.Helper()
	s, err := server.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(s, opts...)
	register(srv)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background()) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	if err := srv.Err(); err != nil {
		t.Fatal(err)
	}
	return srv
}

// dialFrom makes a connection from a node, and waits until it works.
func dialFrom(t testing.TB, n *daemontest.Node, o dialOptions) *Conn {
	t.Helper()
	return dialKnowing(t, n, o, "HalfDuplexCall") // the last that is registered
}

// dialKnowing is dialFrom for a test service of which that method is the last that is registered.
func dialKnowing(t testing.TB, n *daemontest.Node, o dialOptions, method string) *Conn {
	t.Helper()
	c, err := client.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := newConn(newCaller(c, o.node), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	daemontest.Eventually(t, "the test service is known", func() error {
		_, err := c.Method(t.Context(), o.node+"/grpc.testing.TestService/"+method)
		return err
	})
	return conn
}

// runEcho is a process that answers unary calls with their payload, and others with a
// header and nothing until they have sent something: over rdmad by the
// node with the socket args[0], over TCP, and over the Unix socket args[1]. It prints
// its TCP address.
func runEcho(args []string) error {
	echo := &scripted{unary: func(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		return &testgrpc.SimpleResponse{Payload: r.Payload}, nil
	}}
	echo.duplex = func(stream testgrpc.TestService_FullDuplexCallServer) error {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	s, err := server.Attach(context.Background(), args[0])
	if err != nil {
		return err
	}
	srv := NewServer(s)
	echo.register(srv)
	plain := grpc.NewServer()
	echo.register(plain)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	local, err := net.Listen("unix", args[1])
	if err != nil {
		return err
	}
	go func() { _ = plain.Serve(tcp) }()
	go func() { _ = plain.Serve(local) }()
	fmt.Printf("ready\n%v\n", tcp.Addr())
	return errors.Join(srv.Serve(context.Background()), s.Close())
}

// Every way in which a call can lose its handler ends it.
func TestBreakage(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	p := daemontest.Spawn(t, "echo", b.Socket, t.TempDir()+"/grpc.sock")
	rdma, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer rdma.Close()
	to := func(node string) testgrpc.TestServiceClient {
		conn, err := NewClient(rdma, Node(node))
		if err != nil {
			t.Fatal(err)
		}
		return testgrpc.NewTestServiceClient(conn)
	}
	_, err = to("nowhere").UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, "not a [[peer]]")
	if !errors.Is(err, client.ErrNoService) {
		t.Error(err)
	}

	c := to("b")
	begin := func() testgrpc.TestService_FullDuplexCallClient {
		t.Helper()
		stream, err := c.FullDuplexCall(limit(t), grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Header(); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	stream := begin()
	p.Kill()
	_, err = stream.Recv()
	want(t, err, codes.Unavailable, "")
	if !errors.Is(err, client.ErrMaybeExecuted) || errors.Is(err, client.ErrNotExecuted) {
		t.Error(err)
	}
	// The service was there and is gone.
	daemontest.Eventually(t, "the service is gone", func() error {
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
		if status.Code(err) == codes.Unavailable && errors.Is(err, client.ErrNoService) {
			return nil
		}
		return fmt.Errorf("not yet: %w", err)
	})

	// Who waits for it gets it when it is back.
	done := make(chan error, 1)
	go func() {
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
		done <- err
	}()
	daemontest.Spawn(t, "echo", b.Socket, t.TempDir()+"/grpc.sock")
	if err := <-done; err != nil {
		t.Error(err)
	}

	stream = begin()
	if err := b.Crash(); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	want(t, err, codes.Unavailable, "")

	if err := rdma.Close(); err != nil {
		t.Error(err)
	}
	_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, "")
	if !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
	if _, err := NewClient(rdma, Node("no name")); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
}

// A server that stops lets its calls finish, or ends them.
func TestStopping(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	for _, graceful := range []bool{true, false} {
		t.Run(fmt.Sprint("graceful ", graceful), func(t *testing.T) {
			rdma, err := server.Attach(t.Context(), b.Socket)
			if err != nil {
				t.Fatal(err)
			}
			entered, leave := make(chan struct{}), make(chan struct{})
			s := &scripted{unary: func(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
				close(entered)
				select {
				case <-leave:
					return &testgrpc.SimpleResponse{}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}}
			srv := NewServer(rdma)
			s.register(srv)
			served := make(chan error, 1)
			go func() { served <- srv.Serve(context.Background()) }()
			conn := dialFrom(t, a, dialOptions{node: "b"})
			done := make(chan error, 1)
			go func() {
				_, err := testgrpc.NewTestServiceClient(conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{})
				done <- err
			}()
			<-entered
			if graceful {
				close(leave)
				if err := srv.GracefulStop(limit(t)); err != nil {
					t.Error(err)
				}
			}
			if err := rdma.Close(); err != nil {
				t.Error(err)
			}
			<-served
			if err := <-done; graceful && err != nil {
				t.Error(err)
			} else if !graceful {
				want(t, err, codes.Unavailable, "")
			}
		})
	}
}

// Callers of a service that is not there do not keep the daemon busy with saying what is.
func TestAbsenceIsShared(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	rdma, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer rdma.Close()
	caller := newCaller(rdma, "")
	if found := caller.absent(t.Context(), "none", "m", time.Time{}); found != noNode {
		t.Errorf("found %v", found)
	}
	caller.offers = append(caller.offers, offer{Service: "none"}) // which the daemon would not say
	first := caller.asked
	for time.Since(first) < offersFor/2 {
		if found := caller.absent(t.Context(), "none", "m", time.Time{}); found != noMethod && time.Since(first) < offersFor {
			t.Fatalf("found %v after %v", found, time.Since(first))
		}
	}
	caller.asked = first.Add(-offersFor)
	if found := caller.absent(t.Context(), "none", "m", time.Time{}); found != noNode {
		t.Errorf("found %v in an answer that is too old", found)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	caller.asking <- struct{}{}
	if found := caller.absent(ended, "none", "m", time.Time{}); found != noNode {
		t.Errorf("found %v while another call asks", found)
	}
	<-caller.asking
}

// What an answer of the daemon says of a method.
func TestOffers(t *testing.T) {
	const up = "up"
	for name, test := range map[string]struct {
		to     string
		offers []offer
		want   absence
	}{
		"nothing":                               {"", nil, noNode},
		"another service":                       {"", []offer{{"", "b", "other", "m", up}}, noService},
		"another node":                          {"b", []offer{{"", "c", "s", "m", up}, {"", "b", "other", "m", up}}, noService},
		"another method":                        {"b", []offer{{"", "b", "s", "n", up}, {"", "b", "other", "m", up}}, noMethod},
		"the method":                            {"b", []offer{{"", "b", "s", "m", up}, {"", "b", "s", "n", up}}, unreached},
		"the method, draining":                  {"b", []offer{{"", "b", "s", "m", draining}, {"", "b", "s", "n", draining}}, unreached},
		"the method, draining, others up":       {"", []offer{{"", "b", "s", "m", draining}, {"", "c", "s", "n", up}}, unreached},
		"another method, draining":              {"b", []offer{{"", "b", "s", "n", draining}, {"", "b", "other", "m", draining}}, noWay},
		"another method, draining, a service":   {"", []offer{{"", "b", "s", "n", draining}, {"", "c", "other", "m", up}}, noWay},
		"another method, draining and up":       {"", []offer{{"", "b", "s", "n", draining}, {"", "c", "s", "n", up}}, noMethod},
		"another service, draining":             {"b", []offer{{"", "b", "other", "m", draining}}, noNode},
		"another service, draining, another up": {"", []offer{{"", "b", "other", "m", draining}, {"", "c", "other", "m", up}}, noService},
	} {
		c := newCaller(nil, test.to) // which has just been told
		c.offers, c.asked = test.offers, time.Now().Add(time.Hour)
		if found := c.absent(t.Context(), "s", "m", time.Time{}); found != test.want {
			t.Errorf("%s: %v, want %v", name, found, test.want)
		}
	}
}

// A node that takes no requests is as one that is not connected: its services are not taken for unknown, and who waits for them
// gets them when it takes requests again.
func TestDrainedNode(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nconnect_wait = \"0s\"")
	serveOn(t, b, echoSize().register)
	drain := drainer(t, b)
	conn := dialFrom(t, a, dialOptions{node: "b"})
	c := testgrpc.NewTestServiceClient(conn)
	daemontest.Eventually(t, "the nodes are connected", func() error { // one connection may still take the place of another
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
		return err
	})
	drain(true)
	// The peer hears of it later than this returns.
	daemontest.Eventually(t, "the node drains", func() error { return drainingAt(a, "b") })
	_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, "draining")
	_, err = c.EmptyCall(limit(t), &testgrpc.Empty{}) // which it has not called before
	want(t, err, codes.Unavailable, "draining")
	err = conn.Invoke(limit(t), "/grpc.testing.None/M", &testgrpc.Empty{}, &testgrpc.Empty{})
	want(t, err, codes.Unavailable, "draining")

	done := make(chan error, 1)
	go func() {
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("%v from a node that takes no requests", err)
	case <-time.After(3 * registering): // longer than for a method that is about to be there
	}
	drain(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// drainer returns what takes a node out of service, or puts it back.
func drainer(t *testing.T, n *daemontest.Node) func(out bool) {
	t.Helper()
	tool, err := attach.Open(t.Context(), n.Socket, attach.Hello{Role: attach.RoleTool, Name: "drain"}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tool.Close()
		tool.Release()
	})
	return func(out bool) {
		t.Helper()
		if _, err := tool.Ask(t.Context(), &attach.Message{Type: attach.TypeDrain, Drain: &attach.Drain{Resume: !out}}); err != nil {
			t.Fatal(err)
		}
	}
}

// drainingAt returns nil if a node knows that a peer takes no requests.
func drainingAt(n *daemontest.Node, peer string) error {
	st, err := n.Status(context.Background())
	if err != nil {
		return err
	}
	for _, p := range st.Peers {
		if p.Name == peer && p.State == "draining" {
			return nil
		}
	}
	return fmt.Errorf("peers: %+v", st.Peers)
}

// What was known before a service went does not make it one that never was.
func TestGoneSinceLooked(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(s)
	echoSize().register(srv)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background()) }()
	conn := dialFrom(t, a, dialOptions{node: "b"})
	c := testgrpc.NewTestServiceClient(conn)
	if _, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	caller := conn.caller.(*rdmadCaller)
	caller.offers = []offer{{Node: "b", Service: "grpc.testing.TestService", Method: "EmptyCall"}} // as of when it began
	caller.asked = time.Now().Add(time.Minute)                                                     // however long the end of the server takes
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-done
	_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, "")
	if !errors.Is(err, client.ErrNoService) {
		t.Error(err)
	}
}

// A method that was there once, and is not while its service is, is looked for once.
func TestForgottenMethod(t *testing.T) {
	n := newFakeNet(t.Context())
	conn, err := newConn(n, dialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	echoSize().register(newServer(n, nil, nil))
	c := testgrpc.NewTestServiceClient(conn)
	if _, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	delete(n.handlers, "grpc.testing.TestService/UnaryCall")
	for _, since := range []int{1, 0} {
		n.sinces = 0
		_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
		want(t, err, codes.Unimplemented, "unknown method UnaryCall")
		if n.sinces != since {
			t.Errorf("%d looks that had to be new, want %d", n.sinces, since)
		}
	}
	clear(n.handlers)
	_ = n.handle("other", "m", func(incoming) error { return nil })
	_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, "no such service")
	if err := n.quiet(); err != nil {
		t.Error(err)
	}
}

// A method that is none of gRPC is not there for gRPC, also for who would wait for it.
func TestMethodsOfOthers(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(c *server.Call) error { return c.Reply(nil) }
	if err := errors.Join(s.Handle("grpc.testing.TestService", "UnaryCall", plain), s.Handle("grpc.testing.TestService", "EmptyCall", plain)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	c := testgrpc.NewTestServiceClient(dialKnowing(t, a, dialOptions{node: "b"}, "UnaryCall"))
	for _, wait := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := c.UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.WaitForReady(wait))
		want(t, err, codes.Unimplemented, "UnaryCall")
		cancel()
	}
}
