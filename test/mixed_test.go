package test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rdmad/rdmad/client"
)

// mixed is what a client has done that sends calls, futures and posts.
type mixed struct {
	Calls, Futures, Posts int64
	// Sum is the sum of the digests of all posts.
	Sum uint64
}

// Of ten messages so many are calls, and so many are futures; the others are
// posts.
const (
	callsOfTen   = 5
	futuresOfTen = 3
)

// mixedRole sends messages and checks every answer.
func mixedRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	m, err := sendMixed(ctx, conn, args)
	if err != nil {
		return err
	}
	return say.Encode(m)
}

// sendMixed sends messages from one goroutine.
func sendMixed(ctx context.Context, conn *client.Conn, args *roleArgs) (m mixed, err error) {
	transform, err := conn.Method(ctx, args.Node+"/"+args.Service+"/transform")
	if err != nil {
		return m, err
	}
	post, err := conn.Method(ctx, args.Node+"/"+args.Service+"/post")
	if err != nil {
		return m, err
	}
	from := newSource(args.Seed, args.Most)
	buf, answer := make([]byte, args.Most), make([]byte, 0, args.Most)
	q := futureQueue{depth: args.Depth}
	for i := range args.Messages {
		msg, size := from.message(buf)
		sum := digest(msg)
		method := transform.With(client.AnswerSize(size))
		switch {
		case i%10 < callsOfTen:
			a, err := method.CallInto(ctx, msg, answer)
			if err != nil {
				return m, fmt.Errorf("call %d, %d bytes for %d: %w", i, len(msg), size, err)
			}
			if !right(a, size, sum) {
				return m, fmt.Errorf("call %d, %d bytes for %d: wrong answer of %d bytes", i, len(msg), size, len(a))
			}
			m.Calls++
		case i%10 < callsOfTen+futuresOfTen:
			f, err := method.Go(ctx, msg)
			if err == nil {
				err = q.push(ctx, promise{f, size, sum})
			}
			if err != nil {
				return m, fmt.Errorf("future %d, %d bytes for %d: %w", i, len(msg), size, err)
			}
			m.Futures++
		default:
			if err := post.Post(ctx, msg); err != nil {
				return m, fmt.Errorf("post %d, %d bytes: %w", i, len(msg), err)
			}
			m.Posts++
			m.Sum += sum
		}
	}
	return m, q.drain(ctx)
}

// promise is a future and the answer that it should get.
type promise struct {
	future *client.Future
	size   int
	digest uint64
}

// futureQueue keeps up to depth futures, the oldest first.
type futureQueue struct {
	depth int
	queue []promise
}

func (q *futureQueue) push(ctx context.Context, p promise) error {
	q.queue = append(q.queue, p)
	if len(q.queue) > q.depth {
		return q.pop(ctx)
	}
	return nil
}

// pop waits for the oldest future and checks its answer.
func (q *futureQueue) pop(ctx context.Context) error {
	p := q.queue[0]
	q.queue = q.queue[1:]
	answer, err := p.future.Wait(ctx)
	if err != nil {
		return err
	}
	p.future.Release()
	if !right(answer, p.size, p.digest) {
		return fmt.Errorf("wrong answer of %d bytes instead of %d", len(answer), p.size)
	}
	return nil
}

func (q *futureQueue) drain(ctx context.Context) error {
	for len(q.queue) > 0 {
		if err := q.pop(ctx); err != nil {
			return err
		}
	}
	return nil
}
