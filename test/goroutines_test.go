package test

import (
	"errors"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Many goroutines of one process share one attachment.
func TestGoroutines(t *testing.T) {
	const goroutines = 64
	c := newPair(t, sandbox.Settings{})
	service := startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "post", 0)
	conn := c.attach("a")
	ctx := bounded(t)
	sent := make([]mixed, goroutines)
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			args := &roleArgs{Node: "b", Service: "jobs", Messages: many(500), Seed: uint64(i), Most: mostSize, Depth: 1 + i%16}
			sent[i], errs[i] = sendMixed(ctx, conn, args)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	posts := int64(0)
	for _, m := range sent {
		posts += m.Posts
	}
	c.awaitPosts("a", posts)
	compare(t, sent, []*member{service})
}
