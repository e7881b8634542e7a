package test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/server"
)

// orderedRole is a service whose handlers write the beginning and the end of each
// request into a journal that all processes share. A request begins with its key and
// its number.
func orderedRole(ctx context.Context, args *roleArgs, say *json.Encoder) (err error) {
	journal, err := os.OpenFile(args.Journal, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer journal.Close()
	s, err := server.Attach(ctx, args.Socket, server.Workers(args.Handlers))
	if err != nil {
		return err
	}
	note := func(what string, c *server.Call) error {
		le := binary.LittleEndian
		_, err := fmt.Fprintf(journal, "%s %d %d %d\n", what, le.Uint64(c.Request()), le.Uint64(c.Request()[8:]), os.Getpid())
		return err
	}
	err = s.Handle(args.Service, "note", func(c *server.Call) error { return errors.Join(note("begin", c), note("end", c)) })
	if err != nil {
		return errors.Join(err, s.Close())
	}
	if err := say.Encode(os.Getpid()); err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(s.Serve(ctx), s.Close())
}

func startOrdered(t *testing.T, c *cluster, journal string) *member {
	t.Helper()
	m := startMember(t, "ordered", roleArgs{Socket: c.socket("b"), Service: "jobs", Handlers: 4, Journal: journal})
	var pid int
	m.hear(&pid)
	return m
}

// orderly is a goroutine that sends ordered requests, many at a time, and counts how
// they end.
type orderly struct {
	key      uint64
	answered atomic.Int64
	// begun are those that were answered, or may have been executed.
	ends []error
}

func (o *orderly) send(ctx context.Context, conn *client.Conn, requests, depth, most int) error {
	m, err := conn.Method(ctx, "b/jobs/note")
	if err != nil {
		return err
	}
	m = m.With(client.Ordered(o.key), client.AnswerSize(0))
	r := rand.New(rand.NewPCG(o.key, 1))
	o.ends = make([]error, requests)
	futures := make([]*client.Future, requests)
	wait := func(k int) error {
		_, o.ends[k] = futures[k].Wait(ctx)
		o.answered.Add(1)
		return ctx.Err()
	}
	buf := make([]byte, most)
	for k := range requests {
		n := 16 + r.IntN(100)
		if r.IntN(4) == 0 {
			n = 16 + r.IntN(most-16)
		}
		binary.LittleEndian.PutUint64(buf, o.key)
		binary.LittleEndian.PutUint64(buf[8:], uint64(k))
		if futures[k], err = m.Go(ctx, buf[:n]); err != nil {
			return fmt.Errorf("request %d: %w", k, err)
		}
		if k >= depth {
			if err := wait(k - depth); err != nil {
				return err
			}
		}
	}
	for k := requests - min(depth, requests); k < requests; k++ {
		if err := wait(k); err != nil {
			return err
		}
	}
	return nil
}

// checkJournal checks that the requests of each key began in order, each once, and each
// after the end of the one before, or in another process after that of the one before
// was killed. It returns which of them began.
func checkJournal(t *testing.T, journal string, killed map[int]bool) map[uint64]map[uint64]bool {
	t.Helper()
	f, err := os.Open(journal)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type begun struct {
		number uint64
		pid    int
		over   bool
	}
	last := map[uint64]*begun{}
	began := map[uint64]map[uint64]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var what string
		var key, number uint64
		var pid int
		if _, err := fmt.Sscan(lines.Text(), &what, &key, &number, &pid); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		b := last[key]
		switch {
		case what == "end":
			if b == nil || b.number != number || b.pid != pid || b.over {
				t.Errorf("key %d: number %d ends after %+v", key, number, b)
				continue
			}
			b.over = true
		case b != nil && number <= b.number:
			t.Errorf("key %d: number %d begins after %d", key, number, b.number)
		case b != nil && !b.over && (!killed[b.pid] || pid == b.pid):
			t.Errorf("key %d: number %d begins in process %d before the end of %d in process %d", key, number, pid, b.number, b.pid)
		case b != nil && pid != b.pid && !killed[b.pid]:
			t.Errorf("key %d: number %d is in process %d, and %d was in %d, which lives", key, number, pid, b.number, b.pid)
		}
		if what == "begin" {
			last[key] = &begun{number: number, pid: pid}
			if began[key] == nil {
				began[key] = map[uint64]bool{}
			}
			began[key][number] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return began
}

// Eight goroutines send ordered requests of all sizes, each with its own key, over two
// lanes with small rings to three processes, two of which are killed. Each key's requests
// are executed in order, one after the other, by one process as long as it lives.
func TestOrderedRequests(t *testing.T) {
	const keys, requests, depth, most = 8, 3000, 24, 12000
	settings := sandbox.Settings{Lanes: 2, Extra: "[[class]]\nname = \"small\"\nslot_size = 128\nslots = 256\nmax_run = 16\n" +
		"[[class]]\nname = \"large\"\nslot_size = 1024\nslots = 96\nmax_run = 24\n"}
	c := newPair(t, settings)
	journal := filepath.Join(t.TempDir(), "journal")
	members := []*member{startOrdered(t, c, journal), startOrdered(t, c, journal), startOrdered(t, c, journal)}
	c.awaitService("b", "b", "jobs", "note", 3)
	c.awaitService("a", "b", "jobs", "note", 0)
	conn := c.attach("a")
	var all sync.WaitGroup
	senders := make([]*orderly, keys)
	for i := range senders {
		o := &orderly{key: uint64(i) * 1000}
		senders[i] = o
		all.Go(func() {
			if err := o.send(bounded(t), conn, requests, depth, most); err != nil {
				t.Errorf("key %d: %v", o.key, err)
			}
		})
	}
	answered := func() (n int64) {
		for _, o := range senders {
			n += o.answered.Load()
		}
		return n
	}
	killed := map[int]bool{}
	for k, victim := range members[:2] {
		eventually(t, "requests are answered", func() bool { return answered() > int64(k+1)*keys*requests/4 })
		killed[victim.pid()] = true
		if err := victim.kill(); err == nil {
			t.Error("a service ended by itself")
		}
	}
	all.Wait()
	c.awaitQuiet("b", 0)
	members[2].finish()
	began := checkJournal(t, journal, killed)
	for _, o := range senders {
		maybe := 0
		for k, err := range o.ends {
			switch begun := began[o.key][uint64(k)]; {
			case err == nil && !begun:
				t.Errorf("key %d: number %d was answered and never began", o.key, k)
			case errors.Is(err, client.ErrMaybeExecuted):
				maybe++
			case err != nil:
				t.Errorf("key %d: number %d: %v", o.key, k, err)
			}
		}
		if maybe > len(killed) {
			t.Errorf("key %d: %d requests may have been executed, with %d processes killed", o.key, maybe, len(killed))
		}
	}
}
