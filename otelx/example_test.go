package otelx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/otelx"
	"github.com/rdmad/rdmad/server"
)

func ExampleLookup() {
	conn, stop := demo()
	defer stop()
	ctx := context.Background()
	m, err := otelx.Lookup(ctx, conn, "b/greeter/hello")
	if err != nil {
		log.Fatal(err)
	}
	answer, err := m.Call(ctx, []byte("world"))
	fmt.Printf("%s %v\n", answer, err)
	// Output:
	// hello world <nil>
	// client span greeter/hello
	//   server span greeter/hello
}

func ExampleWrap() {
	conn, stop := demo()
	defer stop()
	ctx := context.Background()
	m, err := conn.Method(ctx, "b/greeter/hello")
	if err != nil {
		log.Fatal(err)
	}
	answer, err := otelx.Wrap(m.With(client.Idempotent()), "b/greeter/hello").Call(ctx, []byte("world"))
	fmt.Printf("%s %v\n", answer, err)
	// Output:
	// hello world <nil>
	// client span greeter/hello
	//   server span greeter/hello
}

// hello calls greeter/hello.
func hello(do func(ctx context.Context, m *otelx.Method) error) {
	conn, stop := demo()
	defer stop()
	ctx := context.Background()
	m, err := otelx.Lookup(ctx, conn, "b/greeter/hello")
	if err != nil {
		log.Fatal(err)
	}
	if err := do(ctx, m); err != nil {
		fmt.Println("error:", err)
	}
}

func ExampleMethod_Call() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		_, err := m.Call(ctx, nil)
		return err
	})
	// Output:
	// error: b/greeter/hello: nobody to greet
	// client span greeter/hello, executed: b/greeter/hello: nobody to greet
	//   server span greeter/hello: nobody to greet
}

func ExampleMethod_CallFunc() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		return m.CallFunc(ctx, []byte("world"), func(answer []byte) error {
			fmt.Printf("%s\n", answer)
			return nil
		})
	})
	// Output:
	// hello world
	// client span greeter/hello
	//   server span greeter/hello
}

func ExampleMethod_Post() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		m = m.With(client.Ordered(1)) // else the call may be executed first
		if err := m.Post(ctx, []byte("world")); err != nil {
			return err
		}
		_, err := m.Call(ctx, []byte("you")) // so that the message has been executed before the end
		return err
	})
	// Output:
	// client span greeter/hello
	//   server span greeter/hello
	// client span greeter/hello
	//   server span greeter/hello
}

func ExampleMethod_With() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		answer, err := m.With(client.AnswerSize(100), client.NoWait()).Call(ctx, []byte("world"))
		fmt.Printf("%s\n", answer)
		return err
	})
	// Output:
	// hello world
	// client span greeter/hello
	//   server span greeter/hello
}

func ExampleMethod_Start() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		// One span for a batch: a way to call that Method does not have.
		ctx, batch, end := m.Start(ctx)
		answers, err := batch.CallBatch(ctx, [][]byte{[]byte("Ada"), []byte("Alan")})
		end(err)
		for _, a := range answers {
			fmt.Printf("%s %v\n", a.Answer, a.Err)
		}
		return err
	})
	// Output:
	// hello Ada <nil>
	// hello Alan <nil>
	// client span greeter/hello
	//   server span greeter/hello
	//   server span greeter/hello
}

func ExampleMethod_Go() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		f, err := m.Go(ctx, []byte("world"))
		if err != nil {
			return err
		}
		answer, err := f.Wait(ctx)
		fmt.Printf("%s\n", answer)
		return err
	})
	// Output:
	// hello world
	// client span greeter/hello
	//   server span greeter/hello
}

func ExampleFuture_Wait() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		f, err := m.Go(ctx, nil)
		if err != nil {
			return err
		}
		_, err = f.Wait(ctx) // the span ends here
		return err
	})
	// Output:
	// error: b/greeter/hello: nobody to greet
	// client span greeter/hello, executed: b/greeter/hello: nobody to greet
	//   server span greeter/hello: nobody to greet
}

func ExampleFuture_Cancel() {
	hello(func(ctx context.Context, m *otelx.Method) error {
		f, err := m.Go(ctx, []byte("world"))
		if err != nil {
			return err
		}
		answer, err := f.Wait(ctx)
		// True would mean that the request was not executed, and end the span.
		fmt.Printf("%s, cancelled: %v\n", answer, f.Cancel())
		return err
	})
	// Output:
	// hello world, cancelled: false
	// client span greeter/hello
	//   server span greeter/hello
}

// chat begins the stream greeter/chat.
func chat(do func(ctx context.Context, s *otelx.Stream) error) {
	conn, stop := demo()
	defer stop()
	ctx := context.Background()
	m, err := otelx.Lookup(ctx, conn, "b/greeter/chat")
	if err != nil {
		log.Fatal(err)
	}
	s, err := m.Stream(ctx)
	if err == nil {
		err = do(ctx, s)
	}
	if err != nil {
		fmt.Println("error:", err)
	}
}

func ExampleMethod_Stream() {
	chat(func(ctx context.Context, s *otelx.Stream) error {
		if err := errors.Join(s.Send(ctx, []byte("world")), s.CloseSend(ctx)); err != nil {
			return err
		}
		for {
			msg, err := s.Recv(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			fmt.Printf("%s\n", msg)
		}
	})
	// Output:
	// hello world
	// client span greeter/chat
	//   server span greeter/chat
}

func ExampleStream_Recv() {
	chat(func(ctx context.Context, s *otelx.Stream) error {
		if err := s.CloseSend(ctx); err != nil {
			return err
		}
		_, err := s.Recv(ctx) // the span ends here
		fmt.Println(errors.Is(err, io.EOF))
		return nil
	})
	// Output:
	// true
	// client span greeter/chat
	//   server span greeter/chat
}

func ExampleStream_Close() {
	chat(func(ctx context.Context, s *otelx.Stream) error {
		return s.Close() // the span ends here; the handler's Recv returns an error
	})
	// Output:
	// client span greeter/chat
	//   server span greeter/chat
}

func ExampleHandler() {
	h := otelx.Handler("greeter", "hello", func(c *server.Call) error {
		// The context has the span: what is called with it belongs to it.
		return c.Reply(append([]byte("hello "), c.Request()...))
	})
	_ = h // for Server.Handle("greeter", "hello", h)
	hello(func(ctx context.Context, m *otelx.Method) error {
		answer, err := m.Call(ctx, []byte("world"))
		fmt.Printf("%s\n", answer)
		return err
	})
	// Output:
	// hello world
	// client span greeter/hello
	//   server span greeter/hello
}

func ExampleStreamHandler() {
	h := otelx.StreamHandler("greeter", "chat", func(s *server.Stream) error {
		msg, err := s.Recv()
		if err != nil {
			return err
		}
		return s.Send(msg)
	})
	_ = h // for Server.HandleStream("greeter", "chat", h)
	chat(func(ctx context.Context, s *otelx.Stream) error {
		if err := s.CloseSend(ctx); err != nil {
			return err
		}
		_, err := s.Recv(ctx)
		fmt.Println(errors.Is(err, io.EOF))
		return nil
	})
	// Output:
	// true
	// client span greeter/chat
	//   server span greeter/chat
}

func ExampleWithTracerProvider() {
	conn, stop := demo()
	defer stop()
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	m, err := otelx.Lookup(ctx, conn, "b/greeter/hello", otelx.WithTracerProvider(provider))
	if err != nil {
		log.Fatal(err)
	}
	_, err = m.Call(ctx, []byte("world"))
	fmt.Println(len(exporter.GetSpans()), "span here,", err)
	// Output:
	// 1 span here, <nil>
}

func ExampleWithPropagators() {
	conn, stop := demo()
	defer stop()
	ctx := context.Background()
	// Nothing goes with the requests: the spans of the two sides have nothing to do with
	// each other.
	m, err := otelx.Lookup(ctx, conn, "b/greeter/hello", otelx.WithPropagators(propagation.NewCompositeTextMapPropagator()))
	if err != nil {
		log.Fatal(err)
	}
	_, err = m.Call(ctx, []byte("world"))
	fmt.Println(err)
	// Output:
	// <nil>
	// client span greeter/hello
	// server span greeter/hello
}
