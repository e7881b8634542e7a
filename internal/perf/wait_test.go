package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/shm"
)

// slowQueue is a completion queue of which each look takes a second of a clock that is not the
// machine's: then is called with the number of the look, for what it finds.
type slowQueue struct {
	look int
	then func(look int, c []fabric.Completion) (int, error)
}

func (q *slowQueue) Poll(c []fabric.Completion) (int, error) {
	time.Sleep(time.Second)
	q.look++
	return q.then(q.look, c)
}

func (q *slowQueue) Arm() (bool, error) { return false, fabric.ErrNotSupported }
func (q *slowQueue) Close() error       { return nil }

// waiting returns a waiter with such a queue, and the other end of its link.
func waiting(t *testing.T, then func(look int, c []fabric.Completion) (int, error)) (*waiter, *link.Link) {
	t.Helper()
	x, y := net.Pipe()
	usual := link.Greeting{Version: "test", Protocol: link.Protocol, Provider: "none", Tool: "none"}
	answered := make(chan *link.Link)
	go func() {
		l, err := link.Answer(context.Background(), y, usual)
		if err != nil {
			t.Error(err)
		}
		answered <- l
	}()
	own, err := link.Greet(context.Background(), x, usual)
	if err != nil {
		t.Fatal(err)
	}
	other := <-answered
	t.Cleanup(func() {
		if err := errors.Join(own.Close(), other.Close()); err != nil {
			t.Error(err)
		}
	})
	explain := func(c fabric.Completion) error { return fmt.Errorf("explained: %w", c.Status.Err()) }
	return &waiter{cq: &slowQueue{then: then}, link: own, explain: explain}, other
}

func nothingFound(int, []fabric.Completion) (int, error) { return 0, nil }

// A wait without any progress ends after Stall, give or take the looks between two looks at the
// clock, whoever waits for what.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := waiting(t, nothingFound)
		s := &Session{Link: w.link, waiter: *w}
		var c [1]fabric.Completion
		for name, wait := range map[string]func() error{
			"Await":       func() error { _, err := s.Await(t.Context(), c[:]); return err },
			"Completions": func() error { _, err := s.Completions(t.Context(), c[:]); return err },
			"Hear":        func() error { return s.Hear(t.Context(), "x", &nothing{}) },
			"Spin": func() error {
				s.Resume()
				for {
					if _, err := s.Poll(c[:]); err != nil {
						return err
					}
					if err := s.Spin(t.Context()); err != nil {
						return err
					}
				}
			},
		} {
			begun := time.Now()
			err := wait()
			if !errors.Is(err, ErrStalled) || !strings.Contains(err.Error(), Stall.String()) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begun); took < Stall || took > Stall+3*looks*time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
		}
	})
}

// One that the other side tells that it is at work goes on for as long as that, and one with
// completions now and then for as long as these come.
func TestNoStall(t *testing.T) {
	const long = 100 * looks // seconds, each of which is a look
	t.Run("at work", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, other := waiting(t, nil)
			busy := &waiter{link: other}
			w.cq.(*slowQueue).then = func(look int, c []fabric.Completion) (int, error) {
				if err := busy.AtWork(shm.Nanotime()); err != nil {
					return 0, err
				}
				if look < long {
					return 0, nil
				}
				c[0] = fabric.Completion{}
				return 1, nil
			}
			var c [1]fabric.Completion
			if n, err := w.Await(t.Context(), c[:]); n != 1 || err != nil {
				t.Errorf("%d, %v after %d looks", n, err, w.cq.(*slowQueue).look)
			}
			// Once in a while, not each time that it was called.
			if heard := w.link.Heard(); heard < long/60 || heard > long/2 {
				t.Errorf("it has said %d times in %d seconds that it is at work", heard, long)
			}
		})
	})
	t.Run("completions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, _ := waiting(t, func(look int, c []fabric.Completion) (int, error) {
				if look%looks != 0 {
					return 0, nil
				}
				c[0] = fabric.Completion{}
				return 1, nil
			})
			var c [1]fabric.Completion
			for range 10 {
				if n, err := w.Await(t.Context(), c[:]); n != 1 || err != nil {
					t.Fatalf("%d, %v", n, err)
				}
			}
		})
	})
}

// A wait ends with its context, with a message, and with the link.
func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, other := waiting(t, nothingFound)
		var c [1]fabric.Completion
		limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := w.Await(limited, c[:]); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its context: %v", err)
		}
		if err := other.Send("x", 1); err != nil {
			t.Fatal(err)
		}
		if n, err := w.Await(t.Context(), c[:]); n != 0 || err != nil {
			t.Errorf("a message: %d, %v", n, err)
		}
		var one int
		if err := w.link.Receive(t.Context(), "x", &one); err != nil {
			t.Fatal(err)
		}
		_ = other.Close()
		if _, err := w.Await(t.Context(), c[:]); !errors.Is(err, link.ErrLost) {
			t.Errorf("the end of the link: %v", err)
		}
	})
}

// A completion that failed is an error, with the reason of the other side if that gives one within
// its time, and without if not.
func TestBrokenConnection(t *testing.T) {
	broken := func(_ int, c []fabric.Completion) (int, error) {
		c[0] = fabric.Completion{Op: fabric.OpDisconnect, Status: fabric.StatusFlushed}
		return 1, nil
	}
	synctest.Test(t, func(t *testing.T) {
		w, other := waiting(t, broken)
		var c [1]fabric.Completion
		begun := time.Now()
		if _, err := w.Poll(c[:]); err == nil || !strings.HasPrefix(err.Error(), "explained") || time.Since(begun) < verdictTime {
			t.Errorf("without a reason: %v after %v", err, time.Since(begun))
		}
		told := make(chan struct{})
		go func() {
			other.Fail(errors.New("no such page"), false)
			close(told)
		}()
		var refused *link.RefusedError
		if _, err := w.Poll(c[:]); !errors.As(err, &refused) || !strings.Contains(err.Error(), "no such page") || !strings.Contains(err.Error(), "explained") {
			t.Errorf("with a reason: %v", err)
		}
		<-told
	})
}
