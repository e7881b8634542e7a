package test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// earlyRole is mixedRole in a process that may be older than the daemon: it says
// that it has tried, in vain or not, and goes on when the daemon is there.
func earlyRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil && !errors.Is(err, client.ErrNotRunning) {
		return err
	}
	if err := say.Encode(err == nil); err != nil {
		return err
	}
	for err != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollPause):
		}
		if conn, err = client.Attach(ctx, args.Socket); err != nil && !errors.Is(err, client.ErrNotRunning) {
			return err
		}
	}
	defer conn.Close()
	for {
		// The service may be younger, too.
		if _, err = conn.Method(ctx, args.Node+"/"+args.Service+"/post"); err == nil {
			break
		}
		if !errors.Is(err, client.ErrNoService) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollPause):
		}
	}
	m, err := sendMixed(ctx, conn, args)
	if err != nil {
		return err
	}
	return say.Encode(m)
}

// Processes may be forked before the core has opened its device, when it has just
// done so, and while it works: the queue pairs belong to the core alone, and
// receives go on completing long after those that were posted at first are used
// up. A queue pair that lives in a process that forked after making it stops just
// then.
func TestForkOrder(t *testing.T) {
	// Each receive takes one group. The first receives of a lane are 512.
	const firstReceives, clients = 512, 6
	each := max(many(4000), 1500)
	c := newCluster(t, sandbox.Settings{GroupMax: 1}, "a", "b")
	args := func(i int) roleArgs {
		return roleArgs{Socket: c.socket("a"), Node: "b", Service: "jobs", Messages: each, Seed: uint64(i), Most: 2000, Depth: 8}
	}
	var members []*member
	fork := func(wantDaemon bool) {
		m := startMember(t, "early", args(len(members)))
		var attached bool
		if m.hear(&attached); attached != wantDaemon {
			t.Fatalf("process %d found a daemon: %v", len(members), attached)
		}
		members = append(members, m)
	}
	fork(false)
	fork(false)
	c.start("a", "b")
	fork(true)
	fork(true)
	service := startService(t, c, "b", "jobs")
	received := func() uint64 { return c.status("b").Counters["request_groups_received"] }
	eventually(t, "the lanes are under load", func() bool { return received() > firstReceives })
	for len(members) < clients {
		fork(true)
	}
	sent := make([]mixed, clients)
	posts := int64(0)
	for i, m := range members {
		m.hearWithin(4*limit, &sent[i])
		m.finish()
		posts += sent[i].Posts
	}
	c.awaitPosts("a", posts)
	compare(t, sent, []*member{service})
	// Messages go to two lanes by size; one of them had more than half.
	if n := received(); n < uint64(clients*each) || n < 16*firstReceives {
		t.Errorf("only %d receives for %d messages", n, clients*each)
	}
	if n := c.status("a").Counters["lane_failures"] + c.status("b").Counters["lane_failures"]; n != 0 {
		t.Errorf("%d lanes failed", n)
	}
}
