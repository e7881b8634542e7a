package main

import (
	"context"
	"errors"
	"time"

	"github.com/rdmad/rdmad/client"
)

// style is a way to make calls.
type style uint8

const (
	styleCall style = iota
	styleInto
	styleFunc
	styleInPlace
	stylePending
	styleDeadline
	styleBatch
	styleFuture
	styleCancel
	styleQueue
	stylePost
	styleConfirmed
	styleReserve
	styleOrdered
	styleSplit
	styleStream
	styleRegion
	styleIdempotent
	styles
)

// many is how many calls go at once where a style makes several.
const many = 8

// stylesTable has the ways to make calls, each of which enters all that it begins and all
// outcomes. An error is of the harness.
var stylesTable = [styles]struct {
	name string
	make func(c *caller, m *client.Method, s style, remote bool) error
}{
	styleCall: {"call", single(func(ctx context.Context, _ *caller, m *client.Method, req []byte) ([]byte, error) {
		return m.Call(ctx, req)
	})},
	styleInto: {"into", single(func(ctx context.Context, _ *caller, m *client.Method, req []byte) ([]byte, error) {
		return m.CallInto(ctx, req, req)
	})},
	styleFunc: {"func", single(func(ctx context.Context, _ *caller, m *client.Method, req []byte) (answer []byte, err error) {
		err = m.CallFunc(ctx, req, func(a []byte) error {
			answer = append([]byte(nil), a...)
			return nil
		})
		return answer, err
	})},
	styleInPlace: {"in place", single(func(ctx context.Context, _ *caller, m *client.Method, req []byte) ([]byte, error) {
		a, err := m.CallInPlace(ctx, req)
		if err != nil {
			return nil, err
		}
		defer a.Release()
		return append([]byte(nil), a.Bytes()...), nil
	})},
	stylePending: {"pending", single(func(ctx context.Context, _ *caller, m *client.Method, req []byte) ([]byte, error) {
		p, err := m.GoInPlace(ctx, req)
		if err != nil {
			return nil, err
		}
		a, err := p.Wait(ctx)
		if err != nil {
			return nil, err
		}
		defer a.Release()
		return append([]byte(nil), a.Bytes()...), nil
	})},
	styleDeadline: {"deadline", single(func(ctx context.Context, c *caller, m *client.Method, req []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(c.rng.IntN(20_000))*time.Microsecond)
		defer cancel()
		return m.Call(ctx, req)
	})},
	styleBatch:     {"batch", batch},
	styleFuture:    {"future", futures(func(ctx context.Context, m *client.Method, req []byte) (*client.Future, error) { return m.Go(ctx, req) })},
	styleCancel:    {"cancel", cancelled},
	styleQueue:     {"queue", queued},
	stylePost:      {"post", posted},
	styleConfirmed: {"confirmed", confirmed},
	styleReserve:   {"reserve", reserved},
	styleOrdered: {"ordered", futures(func(ctx context.Context, m *client.Method, req []byte) (*client.Future, error) {
		return m.With(client.Ordered(orderOf(req))).Go(ctx, req)
	})},
	styleSplit: {"split", single(func(ctx context.Context, _ *caller, m *client.Method, req []byte) ([]byte, error) {
		return m.With(client.Split()).Call(ctx, req)
	})},
	styleStream: {"stream", streamed},
	styleRegion: {"region", regions},
	styleIdempotent: {"idempotent", single(func(ctx context.Context, _ *caller, m *client.Method, req []byte) ([]byte, error) {
		return m.With(client.Idempotent()).Call(ctx, req)
	})},
}

func (s style) String() string {
	if s < styles {
		return stylesTable[s].name
	}
	return "damaged"
}

// single makes one call and waits for it.
func single(f func(context.Context, *caller, *client.Method, []byte) ([]byte, error)) func(*caller, *client.Method, style, bool) error {
	return func(c *caller, m *client.Method, s style, remote bool) error {
		k, err := c.begin(s, remote, false)
		if err != nil {
			return err
		}
		answer, err := f(context.Background(), c, m, k.bytes)
		c.end(k, answer, err)
		return nil
	}
}

// batch makes a batch of calls.
func batch(c *caller, m *client.Method, s style, remote bool) error {
	var calls []*call
	var reqs [][]byte
	for range many {
		k, err := c.begin(s, remote, true)
		if err != nil {
			return err
		}
		calls, reqs = append(calls, k), append(reqs, k.bytes)
	}
	results, err := m.CallBatch(context.Background(), reqs)
	for i, k := range calls {
		switch {
		case err != nil:
			c.end(k, nil, err)
		default:
			c.end(k, results[i].Answer, results[i].Err)
		}
	}
	return nil
}

// orderOf is the order of an ordered request: one of so few that several under way have the same.
func orderOf(request []byte) uint64 { return uint64(len(request) % 7) }

// futures keeps several calls under way.
func futures(send func(context.Context, *client.Method, []byte) (*client.Future, error)) func(*caller, *client.Method, style, bool) error {
	return func(c *caller, m *client.Method, s style, remote bool) error {
		var calls [many]*call
		var under [many]*client.Future
		for i := range many {
			k, err := c.begin(s, remote, false)
			if err != nil {
				return err
			}
			if s == styleOrdered {
				k.record.inOrder(c.number, orderOf(k.bytes))
			}
			if under[i], err = send(context.Background(), m, k.bytes); err != nil {
				c.end(k, nil, err)
			}
			calls[i] = k
		}
		for i, f := range under {
			if f != nil {
				answer, err := f.Wait(context.Background())
				c.end(calls[i], answer, err)
				f.Release()
			}
		}
		return nil
	}
}

// cancelled takes a call back, which may come too late.
func cancelled(c *caller, m *client.Method, s style, remote bool) error {
	k, err := c.begin(s, remote, false)
	if err != nil {
		return err
	}
	f, err := m.Go(context.Background(), k.bytes)
	if err != nil {
		c.end(k, nil, err)
		return nil
	}
	if c.rng.IntN(2) == 0 {
		time.Sleep(time.Duration(c.rng.IntN(300)) * time.Microsecond)
	}
	f.Cancel()
	answer, err := f.Wait(context.Background())
	if outcomeOf(err) == outNotExecuted {
		c.endAs(k, outCancelled, err)
	} else {
		c.end(k, answer, err)
	}
	f.Release()
	return nil
}

// queued sends calls whose outcomes come by a queue.
func queued(c *caller, m *client.Method, s style, remote bool) error {
	calls := map[uint64]*call{}
	for i := range uint64(many) {
		k, err := c.begin(s, remote, false)
		if err != nil {
			return err
		}
		if err := m.GoTo(context.Background(), c.queue, k.bytes, i); err != nil {
			c.end(k, nil, err)
			continue
		}
		calls[i] = k
	}
	for tag, r := range c.queue.All(context.Background()) {
		k := calls[tag]
		if k == nil {
			return errors.New("a queue has a result of nobody")
		}
		c.end(k, r.Answer, r.Err)
		delete(calls, tag)
	}
	if len(calls) > 0 {
		return errors.New("a queue is empty too early")
	}
	return nil
}

// posted sends a message one way.
func posted(c *caller, m *client.Method, s style, remote bool) error {
	k, err := c.begin(s, remote, false)
	if err != nil {
		return err
	}
	if err := m.Post(context.Background(), k.bytes); err != nil {
		c.end(k, nil, err)
		return nil
	}
	c.endAs(k, outPosted, nil)
	return nil
}

// confirmed sends messages whose outcome is known.
func confirmed(c *caller, m *client.Method, s style, remote bool) error {
	k, err := c.begin(s, remote, false)
	if err != nil {
		return err
	}
	f, err := m.PostConfirmed(context.Background(), k.bytes)
	if err == nil {
		_, err = f.Wait(context.Background())
		f.Release()
	}
	switch o := outcomeOf(err); {
	case o == outOK && k.flags&headFail == 0:
		c.endAs(k, outOK, nil)
	case o == outOK:
		c.endAs(k, outWrong, errors.New("no error from a handler that fails"))
	default:
		c.end(k, nil, err)
	}
	return nil
}

// reserved writes a request where it is sent from.
func reserved(c *caller, m *client.Method, s style, remote bool) error {
	k, err := c.begin(s, remote, false)
	if err != nil {
		return err
	}
	r, err := m.Reserve(context.Background(), k.length)
	if err != nil {
		c.end(k, nil, err)
		return nil
	}
	copy(r.Bytes(), k.bytes)
	f, err := r.Commit()
	if err != nil {
		c.end(k, nil, err)
		return nil
	}
	answer, err := f.Wait(context.Background())
	c.end(k, answer, err)
	f.Release()
	return nil
}
