package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// logged is sent something for each message that demo/log has printed.
var logged chan struct{}

// demo starts two nodes, a and b, of which b serves demo/upper, demo/greet,
// demo/slow, demo/fill and demo/refuse, and the stream demo/shout. It returns a's socket, which a program finds in the
// environment or in the default place.
func demo() (socket string, stop func()) {
	nodes, err := daemontest.Start("")
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.Attach(context.Background(), nodes.B.Socket, server.Workers(1))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	said := make(chan struct{}, 16)
	logged = said
	for name, h := range map[string]server.Handler{
		"upper": func(c *server.Call) error {
			p := c.Answer(len(c.Request()))
			for i, ch := range p {
				if ch >= 'a' && ch <= 'z' {
					p[i] = ch - 'a' + 'A'
				}
			}
			return nil
		},
		"greet": func(c *server.Call) error { return c.Reply(fmt.Appendf(nil, "hello, %s", c.Request())) },
		"log": func(c *server.Call) error {
			fmt.Printf("b: %s\n", c.Request())
			said <- struct{}{}
			return nil
		},
		"slow": func(c *server.Call) error {
			<-time.After(500 * time.Millisecond)
			return c.Reply([]byte("at last"))
		},
		"fill": func(c *server.Call) error {
			for _, r := range c.Regions() {
				if _, err := r.WriteAt(bytes.Repeat(c.Request(), r.Len()/len(c.Request())), 0); err != nil {
					return err
				}
			}
			return c.Reply([]byte("done"))
		},
		"refuse": func(*server.Call) error { return errors.New("not today") },
	} {
		if err := srv.Handle("demo", name, h); err != nil {
			log.Fatal(err)
		}
	}
	if err := srv.HandleStream("demo", "shout", shout); err != nil {
		log.Fatal(err)
	}
	go func() { done <- srv.Serve(context.Background()) }()
	err = daemontest.Poll("node a knows the methods", func() error {
		st, err := nodes.A.Status(context.Background())
		if err == nil && len(st.Services) < 7 {
			err = errors.New("not yet")
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	return nodes.A.Socket, func() {
		_ = srv.Close()
		<-done
		if err := nodes.Stop(); err != nil {
			log.Fatal(err)
		}
	}
}

// shout answers each message in capital letters, and in the end says how many there were.
func shout(s *server.Stream) error {
	for n := 0; ; n++ {
		msg, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.Send(fmt.Append(nil, n, " messages"))
		}
		if err == nil {
			err = s.Send(bytes.ToUpper(msg))
		}
		if err != nil {
			return err
		}
	}
}
