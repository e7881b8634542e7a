package server_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// tryRegion serves demo/method on node b with h, calls it from node a with a region
// that holds the given text, and prints the answer and the text.
func tryRegion(text string, h func(srv *server.Server, c *server.Call) error) {
	nodes, err := daemontest.Start("")
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := nodes.Stop(); err != nil {
			log.Fatal(err)
		}
	}()
	ctx := context.Background()
	srv, err := server.Attach(ctx, nodes.B.Socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	if err := srv.Handle("demo", "method", func(c *server.Call) error { return h(srv, c) }); err != nil {
		log.Fatal(err)
	}
	go func() { _ = srv.Serve(ctx) }()
	conn, err := client.Attach(ctx, nodes.A.Socket)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	region, err := conn.AllocRegion(ctx, 4096)
	if err != nil {
		log.Fatal(err)
	}
	copy(region.Bytes(), text)
	ref, err := region.Ref(0, len(text), client.MayRead|client.MayWrite|client.MayAtomic)
	if err != nil {
		log.Fatal(err)
	}
	var answer []byte
	err = daemontest.Poll("node a knows the method", func() error {
		answer, err = conn.CallRegions(ctx, "b/demo/method", nil, ref)
		if errors.Is(err, client.ErrNoService) {
			return err
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("answer: %q\nregion: %s\n", answer, region.Bytes()[:len(text)])
}

func ExampleRemoteRegion_WriteAt() {
	tryRegion("................", func(_ *server.Server, c *server.Call) error {
		_, err := c.Region(0).WriteAt([]byte("hello"), 4)
		return err
	})
	// Output:
	// answer: ""
	// region: ....hello.......
}

func ExampleRemoteRegion_ReadAt() {
	tryRegion("what the caller has", func(_ *server.Server, c *server.Call) error {
		p := make([]byte, 6)
		if _, err := c.Region(0).ReadAt(p, 9); err != nil {
			return err
		}
		return c.Reply(p)
	})
	// Output:
	// answer: "caller"
	// region: what the caller has
}

func ExampleRemoteRegion_WriteScattered() {
	tryRegion("................", func(_ *server.Server, c *server.Call) error {
		return c.Region(0).WriteScattered([]server.Page{
			{Off: 12, Bytes: []byte("last")},
			{Off: 0, Bytes: []byte("first")},
		})
	})
	// Output:
	// answer: ""
	// region: first.......last
}

func ExampleRemoteRegion_CompareAndSwap() {
	tryRegion("\x00\x00\x00\x00\x00\x00\x00\x00", func(_ *server.Server, c *server.Call) error {
		const free, mine = 0, 0x2121212121212121
		found, err := c.Region(0).CompareAndSwap(0, free, mine)
		if err != nil {
			return err
		}
		if found != free {
			return errors.New("somebody has it")
		}
		return c.Reply([]byte("it is mine"))
	})
	// Output:
	// answer: "it is mine"
	// region: !!!!!!!!
}

func ExampleRemoteRegion_FetchAdd() {
	tryRegion("AAAAAAAA", func(_ *server.Server, c *server.Call) error {
		old, err := c.Region(0).FetchAdd(0, 0x0101010101010101)
		if err != nil {
			return err
		}
		return c.Reply(fmt.Appendf(nil, "%#x", old))
	})
	// Output:
	// answer: "0x4141414141414141"
	// region: BBBBBBBB
}

func ExampleRemoteRegion_WriteFrom() {
	tryRegion("................", func(srv *server.Server, c *server.Call) error {
		cache, err := srv.AllocRegion(c.Context(), 1<<20) // a program does this once
		if err != nil {
			return err
		}
		defer cache.Free()
		copy(cache.Bytes()[8192:], "page 2")
		page, err := cache.Ref(8192, 6)
		if err != nil {
			return err
		}
		return c.Region(0).WriteFrom(page, 2)
	})
	// Output:
	// answer: ""
	// region: ..page 2........
}

func ExampleRemoteRegion_ReadInto() {
	tryRegion("to be kept", func(srv *server.Server, c *server.Call) error {
		store, err := srv.AllocRegion(c.Context(), 4096)
		if err != nil {
			return err
		}
		defer store.Free()
		dst, err := store.Ref(0, c.Region(0).Len())
		if err != nil {
			return err
		}
		if err := c.Region(0).ReadInto(dst, 0); err != nil {
			return err
		}
		return c.Reply(store.Bytes()[:dst.Len()])
	})
	// Output:
	// answer: "to be kept"
	// region: to be kept
}

func ExampleCall_Regions() {
	tryRegion("sixteen letters.", func(_ *server.Server, c *server.Call) error {
		for i, r := range c.Regions() {
			fmt.Println(i, r.Len(), r.Rights())
		}
		return nil
	})
	// Output:
	// 0 16 wra
	// answer: ""
	// region: sixteen letters.
}

func ExampleCall_Region() {
	tryRegion("here", func(_ *server.Server, c *server.Call) error {
		fmt.Println(c.NumRegions(), c.Region(0).Len(), c.Region(7).Len())
		return nil
	})
	// Output:
	// 1 4 0
	// answer: ""
	// region: here
}

func ExampleRegionError() {
	tryRegion("too short", func(_ *server.Server, c *server.Call) error {
		_, err := c.Region(0).WriteAt([]byte("much too long"), 0)
		var failed *server.RegionError
		fmt.Println(errors.As(err, &failed), errors.Is(err, server.ErrOutOfBounds), errors.Is(err, server.ErrRegion))
		return c.Reply([]byte(failed.Op))
	})
	// Output:
	// true true true
	// answer: "write"
	// region: too short
}

func ExampleServer_AllocRegion() {
	socket, stop := node()
	defer stop()
	srv, err := server.Attach(context.Background(), socket)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	region, err := srv.AllocRegion(context.Background(), 10_000)
	if err != nil {
		log.Fatal(err)
	}
	copy(region.Bytes(), "the local side of operations")
	part, err := region.Ref(4, 5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(region.Len(), part.Len())
	fmt.Println(region.Free(), region.Bytes() == nil)
	// Output:
	// 10000 5
	// <nil> true
}
