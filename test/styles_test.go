package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// styled is what a client has done that uses every style of call.
type styled struct {
	// Done counts the messages of each style.
	Done  map[string]int
	Posts int64
	// Sum is the sum of the digests of all posts.
	Sum uint64
}

// styleSet sends messages in all styles, each of random sizes, and checks every byte of
// every answer against what follows from the request.
type styleSet struct {
	ctx             context.Context
	conn            *client.Conn
	transform, post *client.Method
	stream          *client.Method
	from            *source
	buf, answer     []byte
	region          *client.Region
	did             styled
	n               int // messages so far
}

// styles are the styles by name.
var styles = []struct {
	name string
	do   func(*styleSet) error
}{
	{"Call", (*styleSet).call},
	{"CallInto", (*styleSet).callInto},
	{"CallFunc", (*styleSet).callFunc},
	{"CallBatch", (*styleSet).callBatch},
	{"Go", (*styleSet).futures},
	{"GoTo", (*styleSet).queue},
	{"Reserve", (*styleSet).reserve},
	{"Post", (*styleSet).posts},
	{"CallRegions", (*styleSet).regions},
	{"Stream", (*styleSet).streams},
}

// ways are the ways that messages can go, chosen for each at random.
var ways = [][]client.CallOption{
	nil, nil, {client.AnswerSize(0)}, {client.AnswerSize(5000)}, {client.Rendezvous(0)}, {client.Rendezvous(client.MaxMessage)}, {client.Split()},
}

const styleRegion = 64 << 10

func stylesRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &styleSet{ctx: ctx, conn: conn, from: newSource(args.Seed, args.Most), buf: make([]byte, args.Most), answer: make([]byte, 0, args.Most)}
	s.did.Done = map[string]int{}
	for _, m := range []struct {
		name string
		to   **client.Method
	}{{"transform", &s.transform}, {"post", &s.post}, {"stream", &s.stream}} {
		if *m.to, err = conn.Method(ctx, args.Node+"/"+args.Service+"/"+m.name); err != nil {
			return err
		}
	}
	if s.region, err = conn.AllocRegion(ctx, styleRegion); err != nil {
		return err
	}
	for s.n < args.Messages {
		style, before := styles[s.from.rand.IntN(len(styles))], s.n
		if err := style.do(s); err != nil {
			return fmt.Errorf("%s after %d messages: %w", style.name, before, err)
		}
		s.did.Done[style.name] += s.n - before
	}
	return say.Encode(s.did)
}

// total is how many messages have been sent.
func (d *styled) total() (n int) {
	for _, k := range d.Done {
		n += k
	}
	return n
}

func (s *styleSet) count(n int) { s.n += n }

// way returns transform as one of the ways calls it.
func (s *styleSet) way() *client.Method {
	return s.transform.With(ways[s.from.rand.IntN(len(ways))]...)
}

// check verifies an answer to msg.
func check(answer, msg []byte, size int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%d bytes for %d: %w", len(msg), size, err)
	case !right(answer, size, digest(msg)):
		return fmt.Errorf("%d bytes for %d: wrong answer of %d bytes", len(msg), size, len(answer))
	}
	return nil
}

func (s *styleSet) call() error {
	msg, size := s.from.message(s.buf)
	got, err := s.way().Call(s.ctx, msg)
	s.count(1)
	return check(got, msg, size, err)
}

func (s *styleSet) callInto() error {
	msg, size := s.from.message(s.buf)
	got, err := s.way().CallInto(s.ctx, msg, s.answer)
	s.count(1)
	return check(got, msg, size, err)
}

func (s *styleSet) callFunc() error {
	msg, size := s.from.message(s.buf)
	s.count(1)
	return s.way().CallFunc(s.ctx, msg, func(answer []byte) error { return check(answer, msg, size, nil) })
}

// several makes up to 20 messages that are kept.
func (s *styleSet) several() (msgs [][]byte, sizes []int) {
	most := s.from.most
	s.from.most = max(minSize, most/8)
	defer func() { s.from.most = most }()
	for range 1 + s.from.rand.IntN(20) {
		msg, size := s.from.message(s.buf)
		msgs, sizes = append(msgs, append([]byte(nil), msg...)), append(sizes, size)
	}
	s.count(len(msgs))
	return msgs, sizes
}

func (s *styleSet) callBatch() error {
	msgs, sizes := s.several()
	results, err := s.way().CallBatch(s.ctx, msgs)
	for i := range results {
		err = errors.Join(err, check(results[i].Answer, msgs[i], sizes[i], results[i].Err))
	}
	return err
}

func (s *styleSet) futures() (err error) {
	msgs, sizes := s.several()
	fs := make([]*client.Future, len(msgs))
	for i, msg := range msgs {
		if fs[i], err = s.way().Go(s.ctx, msg); err != nil {
			return err
		}
	}
	for i, f := range fs {
		if i%3 == 0 {
			<-f.Done()
		}
		got, e := f.Wait(s.ctx)
		err = errors.Join(err, check(got, msgs[i], sizes[i], e))
		if i%2 == 0 {
			f.Release()
		}
	}
	return err
}

func (s *styleSet) queue() (err error) {
	msgs, sizes := s.several()
	q := s.conn.NewQueue()
	for i, msg := range msgs {
		if err := s.way().GoTo(s.ctx, q, msg, uint64(i)); err != nil {
			return err
		}
	}
	seen := 0
	for i, r := range q.All(s.ctx) {
		seen++
		err = errors.Join(err, check(r.Answer, msgs[i], sizes[i], r.Err))
	}
	if seen != len(msgs) {
		err = errors.Join(err, fmt.Errorf("%d outcomes of %d", seen, len(msgs)))
	}
	return err
}

func (s *styleSet) reserve() error {
	msg, size := s.from.message(s.buf)
	msg = msg[:min(len(msg), 1<<20)] // what fits a run
	r, err := s.transform.Reserve(s.ctx, len(msg))
	if err != nil {
		return err
	}
	if s.from.rand.IntN(5) == 0 {
		r.Abort()
		return nil
	}
	copy(r.Bytes(), msg)
	f, err := r.Commit()
	if err != nil {
		return err
	}
	got, err := f.Wait(s.ctx)
	s.count(1)
	return check(got, msg, size, err)
}

func (s *styleSet) posts() error {
	msg, _ := s.from.message(s.buf)
	s.count(1)
	s.did.Posts++
	s.did.Sum += digest(msg)
	return s.post.Post(s.ctx, msg)
}

func (s *styleSet) regions() error {
	msg, size := s.from.message(s.buf)
	msg = msg[:min(len(msg), 1<<20)]
	ref, err := s.region.Ref(0, styleRegion, client.MayRead|client.MayWrite)
	if err != nil {
		return err
	}
	got, err := s.transform.CallRegions(s.ctx, msg, ref)
	s.count(1)
	return check(got, msg, size, err)
}

func (s *styleSet) streams() (err error) {
	msgs, sizes := s.several()
	stream, err := s.stream.Stream(s.ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	sent := make(chan error, 1)
	go func() {
		for _, msg := range msgs {
			if err := stream.Send(s.ctx, msg); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend(s.ctx)
	}()
	for i, msg := range msgs {
		got, e := stream.Recv(s.ctx)
		err = errors.Join(err, check(got, msg, sizes[i], e))
	}
	if _, e := stream.Recv(s.ctx); !errors.Is(e, io.EOF) {
		err = errors.Join(err, fmt.Errorf("the stream ended with %w", e))
	}
	return errors.Join(err, <-sent)
}

// Eight processes use every style of call, at random, with messages of all sizes: every
// answer is right in every byte, and every one-way message is executed once.
func TestEveryStyle(t *testing.T) {
	const processes = 8
	nodes := newPair(t, sandbox.Settings{})
	services := []*member{startService(t, nodes, "b", "jobs"), startService(t, nodes, "b", "jobs")}
	nodes.awaitService("a", "b", "jobs", "stream", 0)
	clients := make([]*member, processes)
	for i := range clients {
		clients[i] = startMember(t, "styles", roleArgs{
			Socket: nodes.socket("a"), Node: "b", Service: "jobs", Messages: many(300), Seed: uint64(i), Most: *largestStyle,
		})
	}
	var sent []mixed
	all := map[string]int{}
	posts := int64(0)
	for _, m := range clients {
		var did styled
		m.hearWithin(5*limit+time.Duration(*messages)*time.Millisecond, &did)
		m.finish()
		for style, n := range did.Done {
			all[style] += n
		}
		posts += did.Posts
		sent = append(sent, mixed{Calls: int64(did.total()) - did.Posts, Posts: did.Posts, Sum: did.Sum})
	}
	nodes.awaitPosts("a", posts)
	compare(t, sent, services)
	for _, style := range styles {
		if all[style.name] == 0 {
			t.Errorf("no message in the style of %s", style.name)
		}
	}
	t.Logf("%v", all)
	nodes.awaitQuiet("a", 0)
	nodes.awaitQuiet("b", 0)
}
