package test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/shm"
)

// phaseTime is how long a phase of a load takes. Phases are the same in all
// processes, because the clock is.
const phaseTime = 500 * time.Millisecond

func phaseNow() int64 { return shm.Nanotime() / int64(phaseTime) }

// load is a process that keeps requests outstanding and counts answers by phase.
type load struct {
	m     *client.Method
	args  *roleArgs
	next  atomic.Uint64
	calls map[int64]int
	mu    sync.Mutex
	err   error
}

// loadRole keeps Depth requests of Sizes bytes to a method outstanding, from up to
// eight goroutines. A sleep method is told to take a millisecond. It says 0 when it begins, and at its end how many were
// answered in each phase.
func loadRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket, client.Name("load"))
	if err != nil {
		return err
	}
	defer conn.Close()
	m, err := conn.Method(ctx, args.Node+"/"+args.Service+"/"+args.Method)
	if err != nil {
		return err
	}
	l := &load{m: m.With(client.AnswerSize(8)), args: args, calls: map[int64]int{}}
	if err := say.Encode(0); err != nil {
		return err
	}
	q := conn.NewQueue()
	room := make(chan struct{}, args.Depth)
	var all sync.WaitGroup
	for range min(args.Depth, 8) {
		all.Go(func() { l.send(ctx, q, room) })
	}
	for ctx.Err() == nil {
		for _, r := range q.All(ctx) {
			if r.Err != nil {
				l.fail(ctx, r.Err)
			}
			l.calls[phaseNow()]++
			<-room
		}
		time.Sleep(time.Millisecond) // nothing is outstanding
	}
	all.Wait()
	return errors.Join(l.err, say.Encode(l.calls))
}

// send sends requests as long as there is room until ctx ends.
func (l *load) send(ctx context.Context, q *client.Queue, room chan struct{}) {
	req := make([]byte, slices.Max(l.args.Sizes))
	copy(req, encoded(1))
	for ctx.Err() == nil {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		n := l.args.Sizes[l.next.Add(1)%uint64(len(l.args.Sizes))]
		if err := l.m.GoTo(ctx, q, req[:n], 0); err != nil {
			l.fail(ctx, err)
			return
		}
	}
}

// fail takes down what went wrong before the end.
func (l *load) fail(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && ctx.Err() == nil {
		l.err = err
	}
}

// startLoad starts a load process and waits until it begins.
func startLoad(t *testing.T, args roleArgs) *member {
	t.Helper()
	m := startMember(t, "load", args)
	var zero int
	m.hear(&zero)
	return m
}

// endLoad ends a load and returns how many requests were answered in each phase.
func endLoad(m *member) (calls map[int64]int) {
	_ = m.in.Close()
	m.hear(&calls)
	m.finish()
	return calls
}

// during adds up the calls of n phases.
func during(calls map[int64]int, from, n int64) (sum int) {
	for p := from; p < from+n; p++ {
		sum += calls[p]
	}
	return sum
}
