package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/client"
)

// traffic is calls that go on while a test does something to the daemons. It
// counts how they end.
type traffic struct {
	answered, notExecuted, maybeExecuted, refused atomic.Int64

	cancel context.CancelFunc
	all    sync.WaitGroup
	mu     sync.Mutex
	other  error // what must not happen
}

// startTraffic starts goroutines that call a transform method until end is
// called, or the connection ends.
func startTraffic(t *testing.T, conn *client.Conn, target string) *traffic {
	t.Helper()
	const goroutines = 4
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{cancel: cancel}
	for i := range goroutines {
		tr.all.Go(func() {
			from := newSource(uint64(i), 2000)
			buf := make([]byte, from.most)
			for ctx.Err() == nil {
				tr.call(ctx, conn, target, from, buf)
				select {
				case <-conn.Done():
					return
				default:
				}
			}
		})
	}
	t.Cleanup(func() { tr.end() })
	tr.flows(t)
	return tr
}

// call makes one call and counts its end.
func (tr *traffic) call(ctx context.Context, conn *client.Conn, target string, from *source, buf []byte) {
	msg, size := from.message(buf)
	m, err := conn.Method(ctx, target)
	var answer []byte
	if err == nil {
		answer, err = m.With(client.AnswerSize(size)).Call(ctx, msg)
	}
	if err != nil && ctx.Err() != nil {
		return // given up because the traffic ends
	}
	if err == nil && !right(answer, size, digest(msg)) {
		err = fmt.Errorf("wrong answer of %d bytes instead of %d", len(answer), size)
		tr.fail(err)
		return
	}
	switch outcome(err) {
	case "answered":
		tr.answered.Add(1)
	case "not executed":
		tr.notExecuted.Add(1)
	case "maybe executed":
		tr.maybeExecuted.Add(1)
	case "refused":
		tr.refused.Add(1)
	default:
		tr.fail(err)
	}
}

// outcome sorts the errors of calls; "other" are those that no call may end
// with.
func outcome(err error) string {
	switch {
	case err == nil:
		return "answered"
	case errors.Is(err, client.ErrMaybeExecuted):
		return "maybe executed"
	case errors.Is(err, client.ErrNotExecuted):
		return "not executed"
	case errors.Is(err, client.ErrNoService), errors.Is(err, client.ErrClosed):
		return "refused"
	}
	return "other"
}

func (tr *traffic) fail(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.other == nil {
		tr.other = err
	}
}

// flows waits until some more calls have been answered.
func (tr *traffic) flows(t *testing.T) {
	t.Helper()
	const some = 200
	before := tr.answered.Load()
	eventually(t, "calls are answered", func() bool { return tr.answered.Load() >= before+some })
}

// end ends the traffic and returns what must not have happened.
func (tr *traffic) end() error {
	tr.cancel()
	tr.all.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.other
}

// undisturbed ends the traffic and checks that every call was answered.
func (tr *traffic) undisturbed(t *testing.T) {
	t.Helper()
	if err := tr.end(); err != nil {
		t.Errorf("a call was disturbed: %v", err)
	}
	if n, m, r := tr.notExecuted.Load(), tr.maybeExecuted.Load(), tr.refused.Load(); n+m+r > 0 {
		t.Errorf("%d calls were not executed, %d maybe, %d refused; %d answered", n, m, r, tr.answered.Load())
	}
}

// hangRole sends calls and never waits for their answers. It says how many.
func hangRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	sleep, err := conn.Method(ctx, args.Node+"/"+args.Service+"/sleep")
	if err != nil {
		return err
	}
	for range args.Messages {
		if _, err := sleep.Go(ctx, encoded(sleepMillis)); err != nil {
			return err
		}
	}
	if err := say.Encode(args.Messages); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// sleepMillis is how long the slow calls of the tests take.
const sleepMillis = 200
