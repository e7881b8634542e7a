package node_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/server/node"
)

// registerCache offers cache/get.
func registerCache(_ context.Context, s *server.Server) error {
	pages := map[string]string{"index": "a page"}
	return s.Handle("cache", "get", func(c *server.Call) error {
		return c.Reply([]byte(pages[string(c.Request())]))
	}, server.Inline())
}

func ExampleRun() {
	dir, err := os.MkdirTemp("", "node-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "rdmad.sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, "[node]\nname = \"a\"\nsocket = %q\n[log]\nlevel = \"error\"\n", socket), 0o600); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx, node.Config{File: file}, registerCache) }()

	// Elsewhere: any process of the node, or of another one.
	conn := attachSoon(socket)
	page, err := conn.Call(ctx, "cache/get", []byte("index"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", page)
	if err := conn.Close(); err != nil {
		log.Fatal(err)
	}

	stop()
	fmt.Println("the node has ended:", <-ended)
	// Output:
	// a page
	// the node has ended: <nil>
}

// attachSoon attaches as soon as the node lets workers do so.
func attachSoon(socket string) *client.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		conn, err := client.Attach(ctx, socket)
		if err == nil {
			return conn
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			log.Fatal(err)
		}
	}
}
