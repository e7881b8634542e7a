package grpcx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// dialConfig makes a daemon that stops not wait for streams that last. To stop it is an error then.
const dialConfig = "drain_timeout=\"50ms\"\n"

// dial is Dial for a test.
func dial(t *testing.T, socket string, opts ...DialOption) *Conn {
	t.Helper()
	conn, err := Dial(socket, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// lasting answers unary calls, and streams with a header and nothing else until they have ended.
func lasting() *scripted {
	s := echoSize()
	s.duplex = func(stream testgrpc.TestService_FullDuplexCallServer) error {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	return s
}

// beginStream begins a stream of lasting and waits until its handler runs.
func beginStream(t *testing.T, c testgrpc.TestServiceClient, opts ...grpc.CallOption) testgrpc.TestService_FullDuplexCallClient {
	t.Helper()
	stream, err := c.FullDuplexCall(limit(t), append(opts, grpc.WaitForReady(true))...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// dialled is a connection that a test can cut off, and let have its way again.
type dialled struct {
	conn interface {
		grpc.ClientConnInterface
		Close() error
	}
	cut, mend func() error
}

// dialledTCP is grpc-go, whose server stops and starts again at the same address.
func dialledTCP(t *testing.T, s *scripted) dialled {
	// An address of this process alone: nobody else takes the port while the server is stopped.
	pid := os.Getpid()
	addr := net.JoinHostPort(net.IPv4(127, byte(1+pid/62500%250), byte(pid/250%250), byte(1+pid%250)).String(), "0")
	var srv *grpc.Server
	var done chan struct{}
	start := func() error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		addr, srv, done = l.Addr().String(), grpc.NewServer(), make(chan struct{})
		s.register(srv)
		go func(srv *grpc.Server, done chan struct{}) {
			defer close(done)
			_ = srv.Serve(l) // an error if it is stopped before it has begun
		}(srv, done)
		return nil
	}
	cut := func() error {
		srv.Stop()
		<-done
		return nil
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cut() })
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return dialled{cc, cut, start}
}

// dialledNode is a Conn whose daemon stops and starts again.
func dialledNode(t *testing.T, s *scripted) dialled {
	a, b := daemontest.PairOfEach(t, dialConfig, "")
	serveOn(t, b, s.register)
	conn := dial(t, a.Socket, Node("b"))
	cut := func() error {
		_ = a.Halt() // an error if a stream is under way, which the daemon does not wait for
		return nil
	}
	return dialled{conn, cut, a.Start}
}

func eachDialled(t *testing.T, f func(t *testing.T, d dialled)) {
	t.Run("grpc-go", func(t *testing.T) { f(t, dialledTCP(t, lasting())) })
	t.Run("rdmad", func(t *testing.T) { f(t, dialledNode(t, lasting())) })
}

// A connection is there again when what was at its other end is: what was under way has ended once, what does not wait fails
// meanwhile, and what waits gets its answer.
func TestDialledAgain(t *testing.T) {
	eachDialled(t, func(t *testing.T, d dialled) {
		c := testgrpc.NewTestServiceClient(d.conn)
		for range 2 {
			var finished atomic.Int32
			stream := beginStream(t, c, grpc.OnFinish(func(error) { finished.Add(1) }))
			if err := d.cut(); err != nil {
				t.Fatal(err)
			}
			_, err := stream.Recv()
			want(t, err, codes.Unavailable, "")
			daemontest.Eventually(t, "the connection is known to be lost", func() error {
				_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
				if status.Code(err) != codes.Unavailable {
					t.Fatal(err)
				}
				if _, ours := d.conn.(*Conn); ours && !errors.Is(err, client.ErrNotRunning) {
					return err
				}
				return nil
			})
			done := make(chan error, 1)
			go func() {
				_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
				done <- err
			}()
			short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err = c.UnaryCall(short, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
			stop()
			want(t, err, codes.DeadlineExceeded, "")
			if err := d.mend(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Errorf("a call that has waited: %v", err)
			}
			daemontest.Eventually(t, "calls that do not wait are answered", func() error {
				_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{})
				return err
			})
			if n := finished.Load(); n != 1 {
				t.Errorf("the stream has finished %d times", n)
			}
		}
	})
}

// Close ends calls under way, those that wait for a connection, and later ones.
func TestCloseDialled(t *testing.T) {
	eachDialled(t, func(t *testing.T, d dialled) {
		c := testgrpc.NewTestServiceClient(d.conn)
		stream := beginStream(t, c)
		if err := d.conn.Close(); err != nil {
			t.Error(err)
		}
		_, err := stream.Recv()
		want(t, err, codes.Canceled, "clos")
		_, err = c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
		want(t, err, codes.Canceled, "clos")
		_ = d.conn.Close()
	})
	eachDialled(t, func(t *testing.T, d dialled) {
		if err := d.cut(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := testgrpc.NewTestServiceClient(d.conn).UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
			done <- err
		}()
		if err := d.conn.Close(); err != nil {
			t.Error(err)
		}
		want(t, <-done, codes.Canceled, "clos")
		if err := d.mend(); err != nil {
			t.Error(err)
		}
	})
}

// A Conn may be made before its daemon runs. Calls say what it lacks, also those that have waited in vain.
func TestDialledBeforeTheDaemon(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serveOn(t, b, lasting().register)
	if err := a.Halt(); err != nil {
		t.Fatal(err)
	}
	c := testgrpc.NewTestServiceClient(dial(t, a.Socket, Node("b")))
	_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}) // after the first attempt
	want(t, err, codes.Unavailable, "nothing listens on "+a.Socket)
	if !errors.Is(err, client.ErrNotRunning) || !errors.Is(err, client.ErrNotExecuted) {
		t.Error(err)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = c.UnaryCall(short, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
	want(t, err, codes.DeadlineExceeded, "nothing listens on "+a.Socket)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = c.UnaryCall(ended, &testgrpc.SimpleRequest{}, grpc.WaitForReady(true))
	want(t, err, codes.Canceled, "context canceled")
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
}

// Attempts to attach come at once at first, and then about once in a second; Close ends them.
func TestDialledPauses(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	synctest.Test(t, func(t *testing.T) {
		conn, err := Dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		attempts := func(d time.Duration) (n int) {
			for end := time.After(d); ; {
				conn.keeper.mu.Lock()
				changed := conn.keeper.changed
				conn.keeper.mu.Unlock()
				select {
				case <-changed:
					n++
				case <-end:
					return n
				}
			}
		}
		if n := attempts(time.Second); n < 5 || n > 9 {
			t.Errorf("%d attempts in the first second", n)
		}
		if n := attempts(time.Minute); n < 50 || n > 75 {
			t.Errorf("%d attempts in a minute", n)
		}
		_ = conn.Close()
	})
}

// However many calls there are, of each only one handler ever knows, its outcome is one, and says so; and there is one attachment
// at a time. The daemon of the callers is stopped, or killed, again and again.
func TestDialledUnderLoad(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var runs sync.Map // by the name in the request, how often its handler has run
	s := &scripted{unary: func(_ context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
		n, _ := runs.LoadOrStore(string(r.Payload.Body), new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		return &testgrpc.SimpleResponse{}, nil
	}}
	serveOn(t, b, s.register)
	conn := dial(t, a.Socket, Node("b"), AttachOptions(client.Name("dialled")))
	c := testgrpc.NewTestServiceClient(conn)
	var over atomic.Bool
	var answered atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	defer over.Store(true)
	for caller := range 8 {
		wg.Go(func() {
			for n := 0; !over.Load(); n++ {
				name := fmt.Sprintf("%d/%d", caller, n)
				finished := 0
				_, err := c.UnaryCall(limit(t), &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: []byte(name)}},
					grpc.WaitForReady(true), grpc.OnFinish(func(error) { finished++ }))
				ran := int32(0)
				if n, ok := runs.LoadAndDelete(name); ok {
					ran = n.(*atomic.Int32).Load()
				}
				switch {
				case finished != 1, ran > 1, err == nil && ran != 1, errors.Is(err, client.ErrNotExecuted) && ran != 0:
					t.Errorf("call %s: %v, %d runs, finished %d times", name, err, ran, finished)
				case err != nil && status.Code(err) != codes.Unavailable:
					t.Error(err)
				case err == nil:
					answered.Add(1)
				}
			}
		})
	}
	for _, end := range []func() error{a.Restart, a.Crash, a.KillCore, a.Restart} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		before := answered.Load()
		daemontest.Eventually(t, "calls are answered", func() error {
			if n := answered.Load() - before; n < 100 {
				return fmt.Errorf("%d answers", n)
			}
			return nil
		})
		st, err := a.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		attached := 0
		for _, w := range st.Workers {
			if w.Name == "dialled" {
				attached++
			}
		}
		if attached != 1 {
			t.Errorf("%d attachments: %+v", attached, st.Workers)
		}
	}
}

// What is refused for good is tried on, and said.
func TestDialledRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := testgrpc.NewTestServiceClient(dial(t, file)).UnaryCall(limit(t), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, file)
	if _, err := Dial("", Node("no name")); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
	if _, err := NewClient(nil, AttachOptions(client.Name("x"))); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "Dial") {
		t.Error(err)
	}
}
