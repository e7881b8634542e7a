package client_test

import (
	"context"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// What each way to call allocates, as docs/application.md tells those who choose one: requests and answers fit their
// slots, and futures are released.
func TestAllocationsOfCalls(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: go test without -race counts allocations")
	}
	a, b := daemontest.Pair(t, "")
	// In a process of its own: AllocsPerRun leaves this one a single processor.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	c := attach(t, a)
	m := method(t, c, "b/t/who")
	ctx := context.Background()
	msg, buf := []byte("hello"), make([]byte, 64)
	const many = 10
	batch := make([][]byte, many)
	for i := range batch {
		batch[i] = msg
	}
	q := c.NewQueue()
	region, err := c.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Free()
	ref, err := region.Ref(0, region.Len(), client.MayWrite)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	wait := func(f *client.Future, err error) {
		must(err)
		_, err = f.Wait(ctx)
		must(err)
		f.Release()
	}
	release := func(a client.Answer, err error) {
		must(err)
		a.Release()
	}
	drain := func() {
		for _, r := range q.All(ctx) {
			must(r.Err)
		}
	}
	for _, test := range []struct {
		name string
		most float64
		call func()
	}{
		{"Call", 1, func() { _, err := m.Call(ctx, msg); must(err) }},
		{"CallInto", 0, func() { _, err := m.CallInto(ctx, msg, buf); must(err) }},
		{"CallFunc", 0, func() { must(m.CallFunc(ctx, msg, func([]byte) error { return nil })) }},
		{"CallInPlace", 0, func() { release(m.CallInPlace(ctx, msg)) }},
		{"Go", 1, func() { wait(m.Go(ctx, msg)) }},
		{"Go without Release", 2, func() { f, err := m.Go(ctx, msg); must(err); _, err = f.Wait(ctx); must(err) }},
		{"GoInto", 0, func() { wait(m.GoInto(ctx, msg, buf)) }},
		{"GoInPlace", 0, func() { p, err := m.GoInPlace(ctx, msg); must(err); release(p.Wait(ctx)) }},
		{"GoTo", many + 1, func() { // and the loop's own
			for i := range many {
				must(m.GoTo(ctx, q, msg, uint64(i)))
			}
			drain()
		}},
		{"CallBatch", many + 10, func() { _, err := m.CallBatch(ctx, batch); must(err) }},
		{"Reserve and Commit", 1, func() { r, err := m.Reserve(ctx, len(msg)); must(err); wait(r.Commit()) }},
		{"Reserve and CallInPlace", 0, func() { r, err := m.Reserve(ctx, len(msg)); must(err); release(r.CallInPlace(ctx)) }},
		{"Post", 0, func() { must(m.Post(ctx, msg)) }},
		{"PostConfirmed", 0, func() { wait(m.PostConfirmed(ctx, msg)) }},
		{"PostTo", 1, func() {
			for i := range many {
				must(m.PostTo(ctx, q, msg, uint64(i)))
			}
			drain()
		}},
		{"CallRegions", 1, func() { _, err := m.CallRegions(ctx, msg, ref); must(err) }},
		{"CallRegionsInto", 0, func() { _, err := m.CallRegionsInto(ctx, msg, buf, ref); must(err) }},
		{"GoRegions", 1, func() { wait(m.GoRegions(ctx, msg, ref)) }},
	} {
		// The average over many: the runtime itself allocates now and then.
		if n := testing.AllocsPerRun(500, test.call); n > test.most {
			t.Errorf("%s: %v allocations, at most %v are told of", test.name, n, test.most)
		}
	}
}
