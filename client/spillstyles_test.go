package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

// gatedEcho is a handler that waits at the gate and answers with its request; with as
// many bytes as that says if it begins with "make", with an error if it is "fail".
func (g *gate) gatedEcho(c *server.Call) error {
	req := bytes.Clone(c.Request())
	g.entered <- struct{}{}
	<-g.open
	switch {
	case bytes.HasPrefix(req, []byte("make")):
		return c.Reply(pattern(int(binary.LittleEndian.Uint64(req[4:])), 7))
	case string(req) == "fail":
		return errors.New("as asked")
	}
	return c.Reply(req)
}

// caller is who calls.
type caller struct {
	c    *client.Conn
	m    *client.Method
	node string
}

// style is a way to make a call whose answer is to be the request.
type style struct {
	name string
	n    int // how many handlers it enters
	do   func(ctx context.Context, x *caller) error
}

func same(got, want []byte, err error) error {
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("got %d bytes %.20q, want %d", len(got), got, len(want))
	}
	return err
}

var styles = []style{
	{"call", 1, func(ctx context.Context, x *caller) error {
		got, err := x.m.Call(ctx, []byte("call"))
		return same(got, []byte("call"), err)
	}},
	{"long run", 1, func(ctx context.Context, x *caller) error {
		got, err := x.m.Call(ctx, pattern(3000, 1))
		return same(got, pattern(3000, 1), err)
	}},
	{"into", 1, func(ctx context.Context, x *caller) error {
		buf := make([]byte, 0, 100)
		got, err := x.m.CallInto(ctx, []byte("into"), buf)
		if err == nil && &got[0] != &buf[:1][0] {
			return errors.New("a new buffer")
		}
		return same(got, []byte("into"), err)
	}},
	{"futures", 20, func(ctx context.Context, x *caller) error {
		var fs []*client.Future
		for k := range 20 {
			f, err := x.m.Go(ctx, []byte{byte(k)})
			if err != nil {
				return err
			}
			fs = append(fs, f)
		}
		var errs []error
		for k, f := range fs {
			got, err := f.Wait(ctx)
			errs = append(errs, same(got, []byte{byte(k)}, err))
			f.Release()
		}
		return errors.Join(errs...)
	}},
	{"done", 1, func(ctx context.Context, x *caller) error {
		f, err := x.m.Go(ctx, []byte("done"))
		if err != nil {
			return err
		}
		<-f.Done()
		got, err, _ := f.Result()
		return same(got, []byte("done"), err)
	}},
	{"queue", 20, func(ctx context.Context, x *caller) error {
		q := x.c.NewQueue()
		for k := range 20 {
			if err := x.m.GoTo(ctx, q, []byte{byte(k)}, uint64(k)); err != nil {
				return err
			}
		}
		var errs []error
		n := 0
		for tag, r := range q.All(ctx) {
			errs = append(errs, same(r.Answer, []byte{byte(tag)}, r.Err))
			n++
		}
		if n != 20 {
			errs = append(errs, fmt.Errorf("%d outcomes", n))
		}
		return errors.Join(errs...)
	}},
	{"func", 1, func(ctx context.Context, x *caller) error {
		var got []byte
		err := x.m.CallFunc(ctx, []byte("func"), func(answer []byte) error {
			got = bytes.Clone(answer)
			return nil
		})
		return same(got, []byte("func"), err)
	}},
	{"in place", 1, func(ctx context.Context, x *caller) error {
		a, err := x.m.CallInPlace(ctx, []byte("in place"))
		if err == nil {
			err = same(a.Bytes(), []byte("in place"), nil)
			a.Release()
		}
		return err
	}},
	{"in place, later", 20, func(ctx context.Context, x *caller) error {
		pending := make([]client.Pending, 20)
		for k := range pending {
			var err error
			if pending[k], err = x.m.GoInPlace(ctx, []byte{byte(k)}); err != nil {
				return err
			}
		}
		var errs []error
		for k, p := range pending {
			a, err := p.Wait(ctx)
			if err == nil {
				err = same(a.Bytes(), []byte{byte(k)}, nil)
				a.Release()
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}},
	{"reserved", 1, func(ctx context.Context, x *caller) error {
		r, err := x.m.Reserve(ctx, 8)
		if err != nil {
			return err
		}
		copy(r.Bytes(), "reserved")
		a, err := r.CallInPlace(ctx)
		if err == nil {
			err = same(a.Bytes(), []byte("reserved"), nil)
			a.Release()
		}
		return err
	}},
	{"batch", 20, func(ctx context.Context, x *caller) error {
		reqs := make([][]byte, 20)
		for k := range reqs {
			reqs[k] = pattern(100*k, uint64(k))
		}
		results, err := x.m.CallBatch(ctx, reqs)
		errs := []error{err}
		for k, r := range results {
			errs = append(errs, same(r.Answer, reqs[k], r.Err))
		}
		return errors.Join(errs...)
	}},
	{"confirmed", 1, func(ctx context.Context, x *caller) error {
		f, err := x.m.PostConfirmed(ctx, []byte("post"))
		if err == nil {
			_, err = f.Wait(ctx)
		}
		return err
	}},
	{"error", 1, func(ctx context.Context, x *caller) error {
		_, err := x.m.Call(ctx, []byte("fail"))
		if remote := new(client.RemoteError); !errors.As(err, &remote) || !strings.Contains(remote.Text, "as asked") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	}},
	{"large answer", 1, func(ctx context.Context, x *caller) error {
		got, err := x.m.Call(ctx, binary.LittleEndian.AppendUint64([]byte("make"), 3<<20))
		return same(got, pattern(3<<20, 7), err)
	}},
	{"large request", 1, func(ctx context.Context, x *caller) error {
		got, err := x.m.Call(ctx, pattern(3<<20, 9))
		return same(got, pattern(3<<20, 9), err)
	}},
	{"cancelled", 1, func(ctx context.Context, x *caller) error {
		f, err := x.m.Go(ctx, []byte("cancelled"))
		if err != nil {
			return err
		}
		if f.Cancel() {
			return nil
		}
		got, err := f.Wait(ctx)
		if errors.Is(err, client.ErrNotExecuted) {
			return nil // cancelled at the answering node
		}
		return same(got, []byte("cancelled"), err)
	}},
	{"given up", 10, func(ctx context.Context, x *caller) error {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
				_, _ = x.m.With(client.AnswerSize(8)).Call(soon, []byte("given up"))
			})
		}
		all.Wait()
		return nil
	}},
	{"stream", 1, func(ctx context.Context, x *caller) error {
		s, err := x.c.Method(ctx, x.node+"/t/stream")
		if err != nil {
			return err
		}
		str, err := s.Stream(ctx)
		if err != nil {
			return err
		}
		defer str.Close()
		for k := range 30 {
			got, err := str.Recv(ctx)
			if err := same(got, pattern(1000*k, uint64(k)), err); err != nil {
				return fmt.Errorf("message %d: %w", k, err)
			}
		}
		return nil
	}},
}

// runStyles calls in every style, all at once, and says how that went. The process is
// stopped meanwhile.
func runStyles(args []string) error {
	c, err := client.Attach(context.Background(), args[0])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := c.Method(ctx, args[1]+"/t/gate")
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, len(styles))
	for k, s := range styles {
		all.Go(func() {
			if err := s.do(ctx, &caller{c, m, args[1]}); err != nil {
				errs[k] = fmt.Errorf("%s: %w", s.name, err)
			}
		})
	}
	all.Wait()
	err = errors.Join(errs...)
	fmt.Println(strings.ReplaceAll(fmt.Sprint("styles: ", err), "\n", "; "))
	return errors.Join(err, c.Close())
}
