package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

// decoyRole is an honest process of the domain that hostile workers are in: it gives them
// something to damage. It answers calls, and calls the other node, and does not care what
// becomes of that.
func decoyRole(ctx context.Context, args *roleArgs) error {
	var both sync.WaitGroup
	both.Go(func() {
		for ctx.Err() == nil {
			if srv, err := server.Attach(ctx, args.Socket, server.Name("decoy")); err == nil {
				if srv.Handle("bad", "bad", echo, server.AnswerLikeRequest()) == nil {
					_ = srv.Serve(ctx)
				}
				_ = srv.Close()
			}
			time.Sleep(again)
		}
	})
	both.Go(func() {
		for ctx.Err() == nil {
			if conn, err := client.Attach(ctx, args.Socket, client.Name("decoy")); err == nil {
				decoyCalls(ctx, conn, args.Peer+"/bad/bad")
				_ = conn.Close()
			}
			time.Sleep(again)
		}
	})
	both.Wait()
	return nil
}

func echo(c *server.Call) error { return c.Reply(c.Request()) }

// decoyCalls calls until the connection ends.
func decoyCalls(ctx context.Context, conn *client.Conn, target string) {
	req := make([]byte, 20<<10)
	for ctx.Err() == nil {
		select {
		case <-conn.Done():
			return
		default:
		}
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		_, _ = conn.Call(soon, target, req[:rand.IntN(len(req))])
		cancel()
		time.Sleep(rand.N(thinking))
	}
}
