package test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/server"
)

// notedRole is a service whose handler notes the number of each request in a journal that
// all processes share, as the first thing that it does, and answers with the number.
func notedRole(ctx context.Context, args *roleArgs, say *json.Encoder) (err error) {
	journal, err := os.OpenFile(args.Journal, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer journal.Close()
	s, err := server.Attach(ctx, args.Socket, server.Workers(4))
	if err != nil {
		return err
	}
	err = s.Handle(args.Service, "note", func(c *server.Call) error {
		id := append([]byte(nil), c.Request()...)
		if _, err := fmt.Fprintln(journal, binary.LittleEndian.Uint64(id)); err != nil {
			return err
		}
		return c.Reply(id)
	})
	if err == nil {
		err = say.Encode(os.Getpid())
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(s.Serve(ctx), s.Close())
}

// startNoted starts two processes of the service on a node.
func startNoted(t *testing.T, c *cluster, node, journal string) (members []*member) {
	t.Helper()
	for range 2 {
		m := startMember(t, "noted", roleArgs{Socket: c.socket(node), Service: "jobs", Journal: journal})
		var pid int
		m.hear(&pid)
		members = append(members, m)
	}
	return members
}

// counting is a client that sends numbered requests, in all styles that can be sent again,
// and notes how each ends.
type counting struct {
	conn *client.Conn
	m    *client.Method
	base uint64
	// ends has a letter for each request: a for answered, n for not executed, m for
	// maybe executed.
	ends []byte
}

// countingRole sends until it is told to end, and then says how its requests have ended.
func countingRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	target := args.Service + "/note"
	if args.Node != "" {
		target = args.Node + "/" + target
	}
	s := &counting{conn: conn, base: args.Seed << 32}
	if s.m, err = conn.Method(ctx, target); err != nil {
		return err
	}
	if args.Method == "idempotent" {
		s.m = s.m.With(client.Idempotent())
	}
	styles := []func(context.Context) error{s.call, s.callFunc, s.futures, s.queue, s.batch}
	for n := 0; ctx.Err() == nil; n++ {
		if err := styles[n%len(styles)](context.Background()); err != nil {
			return err
		}
	}
	return say.Encode(s.ends)
}

// next makes the next request.
func (s *counting) next() []byte {
	id := encoded(s.base | uint64(len(s.ends)))
	s.ends = append(s.ends, '?')
	return id
}

// end notes how a request has ended.
func (s *counting) end(id, answer []byte, err error) error {
	letter := byte('a')
	switch maybe, not := errors.Is(err, client.ErrMaybeExecuted), errors.Is(err, client.ErrNotExecuted); {
	case err == nil && string(answer) != string(id):
		return fmt.Errorf("request %x: answer %x", id, answer)
	case err == nil:
	case maybe == not:
		return fmt.Errorf("request %x: %w", id, err)
	case maybe:
		letter = 'm'
	default:
		letter = 'n'
	}
	n := binary.LittleEndian.Uint64(id) & (1<<32 - 1)
	if s.ends[n] != '?' {
		return fmt.Errorf("request %x has two outcomes, the second is %w", id, err)
	}
	s.ends[n] = letter
	return nil
}

func (s *counting) call(ctx context.Context) error {
	id := s.next()
	answer, err := s.m.Call(ctx, id)
	return s.end(id, answer, err)
}

func (s *counting) callFunc(ctx context.Context) error {
	id := s.next()
	var got []byte
	err := s.m.CallFunc(ctx, id, func(answer []byte) error {
		got = append(got, answer...)
		return nil
	})
	return s.end(id, got, err)
}

// several is how many requests of a client are under way at once.
const several = 16

func (s *counting) futures(ctx context.Context) (err error) {
	var ids [][]byte
	var fs []*client.Future
	for range several {
		id := s.next()
		f, ferr := s.m.Go(ctx, id)
		if ferr != nil {
			err = errors.Join(err, s.end(id, nil, ferr))
			continue
		}
		ids, fs = append(ids, id), append(fs, f)
	}
	for i, f := range fs {
		answer, ferr := f.Wait(ctx)
		err = errors.Join(err, s.end(ids[i], answer, ferr))
	}
	return err
}

func (s *counting) queue(ctx context.Context) (err error) {
	q := s.conn.NewQueue()
	for range several {
		id := s.next()
		if qerr := s.m.GoTo(ctx, q, id, binary.LittleEndian.Uint64(id)); qerr != nil {
			err = errors.Join(err, s.end(id, nil, qerr))
		}
	}
	for id, r := range q.All(ctx) {
		err = errors.Join(err, s.end(encoded(id), r.Answer, r.Err))
	}
	return err
}

func (s *counting) batch(ctx context.Context) (err error) {
	var ids [][]byte
	for range several {
		ids = append(ids, s.next())
	}
	results, berr := s.m.CallBatch(ctx, ids)
	for i, id := range ids {
		if berr != nil {
			err = errors.Join(err, s.end(id, nil, berr))
			continue
		}
		err = errors.Join(err, s.end(id, results[i].Answer, results[i].Err))
	}
	return err
}

// executions counts how often each number is in the journal.
func executions(t *testing.T, journal string) map[uint64]int {
	t.Helper()
	f, err := os.Open(journal)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count := map[uint64]int{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		id, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		count[id]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return count
}

// killNode kills a node, its supervisor and its core.
func (c *cluster) killNode(name string) {
	c.t.Helper()
	pids, err := c.nodes[name].PIDs(bounded(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	kill(c.t, pids.Supervisor)
	// Alone it ends by itself, and may have done so.
	if err := syscall.Kill(pids.Core, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.t.Fatal(err)
	}
	<-c.nodes[name].Process().Done()
}

// Eight processes call a service that two nodes have, while processes of the service are
// killed, all that a node has, the node itself, and the other node is drained. Every request
// of the four that may be executed more than once is answered. The others' end as they say:
// those answered were executed once, those not executed never, and none twice.
func TestIdempotentUnderFire(t *testing.T) {
	const clients, some = 8, 2000
	c := newCluster(t, sandbox.Settings{}, "a", "b", "c")
	c.start("a", "b", "c")
	journal := filepath.Join(t.TempDir(), "journal")
	members := map[string][]*member{}
	serve := func(node string) {
		members[node] = startNoted(t, c, node, journal)
		c.awaitService("a", node, "jobs", "note", 0)
	}
	serve("b")
	serve("c")
	callers := make([]*member, clients)
	idempotent := func(i int) bool { return i%2 == 0 }
	for i := range callers {
		args := roleArgs{Socket: c.socket("a"), Service: "jobs", Seed: uint64(i)}
		if idempotent(i) {
			args.Method = "idempotent"
		}
		if i < 2 {
			args.Node = "b" // and there is no other
		}
		callers[i] = startMember(t, "counting", args)
	}
	flows := func() {
		t.Helper()
		size := func() int64 {
			info, err := os.Stat(journal)
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		before := size()
		eventually(t, "requests are executed", func() bool { return size() > before+some*11 })
	}
	end := func(m *member) {
		t.Helper()
		if err := m.kill(); err == nil {
			t.Error("a service ended by itself")
		}
	}
	flows()
	for _, node := range []string{"b", "c"} { // one of two processes, then the other
		end(members[node][0])
		flows()
		end(members[node][1])
		flows()
		serve(node)
		flows()
	}
	for range 2 {
		c.killNode("b")
		flows()
		c.start("b")
		serve("b")
		flows()
		c.stop("c")
		flows()
		c.start("c")
		serve("c")
		flows()
	}
	all := make([][]byte, clients)
	for i, m := range callers {
		_ = m.in.Close()
		m.hearWithin(3*limit, &all[i])
		m.finish()
	}
	ran := executions(t, journal)
	ends := [2]map[byte]int{{}, {}}
	again := 0
	for i, letters := range all {
		kind := 0
		if idempotent(i) {
			kind = 1
		}
		for n, letter := range letters {
			id := uint64(i)<<32 | uint64(n)
			count := ran[id]
			delete(ran, id)
			ends[kind][letter]++
			good := false
			switch {
			case kind == 1:
				good = letter == 'a' && count >= 1
				again += max(count-1, 0)
			case letter == 'a':
				good = count == 1
			case letter == 'n':
				good = count == 0
			case letter == 'm':
				good = count <= 1
			}
			if !good {
				t.Errorf("request %d of client %d ended as %q and was executed %d times", n, i, letter, count)
			}
		}
	}
	if len(ran) > 0 {
		t.Errorf("%d requests were executed that nobody sent", len(ran))
	}
	text := func(m map[byte]int) string {
		return fmt.Sprintf("%d answered, %d not executed, %d maybe", m['a'], m['n'], m['m'])
	}
	t.Logf("idempotent: %s, %d executed again; others: %s", text(ends[1]), again, text(ends[0]))
	if ends[0]['a'] == 0 || ends[1]['a'] == 0 || ends[0]['m']+ends[0]['n'] == 0 {
		t.Error("nothing happened to anybody")
	}
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
	c.awaitQuiet("c", 0)
}
