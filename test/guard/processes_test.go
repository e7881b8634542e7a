package guard

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

const (
	// size is how large requests and answers are, and batchSize how many go at a time.
	size      = 64
	batchSize = 64
	// pageSize is how large those are that are not small, and regionSize a region.
	pageSize   = 8 << 10
	regionSize = 1 << 20
)

// allocated returns how many objects this process has allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// runService is a service process: t/echo answers with the request, t/allocated with how
// many objects the process has allocated; t/move reads the region of the call into one of
// its own, and writes it back.
func runService(args []string) error {
	s, err := server.Attach(context.Background(), args[0], server.Workers(4), server.WaitMode(server.Event))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := register(s); err != nil {
		return err
	}
	fmt.Println("ready")
	return s.Serve(context.Background())
}

// register registers the service's methods, t/echo with the given options.
func register(s *server.Server, echo ...server.MethodOption) error {
	own, err := s.AllocRegion(context.Background(), regionSize)
	if err != nil {
		return err
	}
	ref, err := own.Ref(0, regionSize)
	if err != nil {
		return err
	}
	return errors.Join(
		s.Handle("t", "move", func(c *server.Call) error {
			return errors.Join(c.Region(0).ReadInto(ref, 0), c.Region(0).WriteFrom(ref, 0))
		}),
		s.Handle("t", "echo", func(c *server.Call) error { return c.Reply(c.Request()) }, append(echo, server.AnswerLikeRequest())...),
		s.Handle("t", "allocated", func(c *server.Call) error {
			return c.Reply(binary.LittleEndian.AppendUint64(nil, allocated()))
		}, server.AnswerSize(8)))
}

// caller is a process that makes rounds of requests, each round when the one before is
// over.
type caller struct {
	m, pages, moves *client.Method
	region          client.RegionRef
	req, page       []byte
	buf             []byte
	reqs            [][]byte
	fs              [batchSize]*client.Future
}

// runCaller is a caller that waits for lines "STYLE ROUNDS" on its standard input, and
// says after each how many objects it has allocated in those rounds.
func runCaller(args []string) error {
	ctx := context.Background()
	conn, err := client.Attach(ctx, args[0], client.WaitMode(client.Event))
	if err != nil {
		return err
	}
	defer conn.Close()
	c := &caller{req: make([]byte, size), page: make([]byte, pageSize), buf: make([]byte, pageSize)}
	if err := daemontest.Poll("look up methods", func() (err error) {
		if c.m, err = conn.Method(ctx, "b/t/echo"); err != nil {
			return err
		}
		c.moves, err = conn.Method(ctx, "b/t/move")
		return err
	}); err != nil {
		return err
	}
	region, err := conn.AllocRegion(ctx, regionSize)
	if err != nil {
		return err
	}
	if c.region, err = region.Ref(0, regionSize, client.MayRead|client.MayWrite); err != nil {
		return err
	}
	c.m, c.pages = c.m.With(client.AnswerSize(size)), c.m.With(client.AnswerSize(pageSize))
	for range batchSize {
		c.reqs = append(c.reqs, c.req)
	}
	styles := map[string]func(context.Context) error{"call": c.call, "rested": c.callRested, "batch": c.batch, "futures": c.futures, "posts": c.posts, "flood": c.flood, "pages": c.echoPage, "regions": c.move}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var style string
		var rounds int
		if _, err := fmt.Sscanf(line, "%s %d", &style, &rounds); err != nil {
			return fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
		before := allocated()
		for range rounds {
			if err := styles[style](ctx); err != nil {
				return err
			}
		}
		fmt.Println(allocated() - before)
	}
}

// call makes one call.
func (c *caller) call(ctx context.Context) error {
	_, err := c.m.CallInto(ctx, c.req, c.buf)
	return err
}

// callRested makes a call when the daemons have had the time to fall asleep.
func (c *caller) callRested(ctx context.Context) error {
	// No wait for anything: a shorter one only makes for fewer bells. Not time.Sleep, for whose
	// timer the Go runtime rings a bell of its own.
	pause := unix.NsecToTimespec(rest.Nanoseconds())
	_ = unix.Nanosleep(&pause, nil)
	return c.call(ctx)
}

// flood sends a batch of messages one way, as soon as there is room for each.
func (c *caller) flood(ctx context.Context) error {
	for range batchSize {
		if err := c.m.Post(ctx, c.req); err != nil {
			return err
		}
	}
	return nil
}

// rest is long for an agent without work, and shorter than what its sleeps are bounded by.
const rest = 2 * time.Millisecond

// echoPage makes a call of a page.
func (c *caller) echoPage(ctx context.Context) error {
	_, err := c.pages.CallInto(ctx, c.page, c.buf)
	return err
}

// move makes a call whose handler moves a region there and back.
func (c *caller) move(ctx context.Context) error {
	_, err := c.moves.CallRegions(ctx, nil, c.region)
	return err
}

// batch makes a batch of calls, of which the daemon is told once.
func (c *caller) batch(ctx context.Context) error {
	results, err := c.m.CallBatch(ctx, c.reqs)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	return err
}

// futures has a batch of requests under way, of each of which the daemon is told.
func (c *caller) futures(ctx context.Context) (err error) {
	for i := range c.fs {
		if c.fs[i], err = c.m.GoInto(ctx, c.req, c.buf); err != nil {
			return err
		}
	}
	for _, f := range c.fs {
		if _, err := f.Wait(ctx); err != nil {
			return err
		}
		f.Release()
	}
	return nil
}

// posts sends a batch of messages one way, and makes a call, which they are before.
func (c *caller) posts(ctx context.Context) error {
	if err := c.flood(ctx); err != nil {
		return err
	}
	return c.call(ctx)
}
