package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/server"
)

var resets = flag.Int("rdmad.resets", 40, "how often tests cut the link between nodes")

// resetWork is what goes on while links are cut.
type resetWork struct {
	t    *testing.T
	c    *cluster
	stop atomic.Bool
	// forgetful: nodes lose with the link what requests may do with regions.
	forgetful bool
	// calls counts what the service must have executed.
	calls atomic.Int64
}

// run repeats f until the test stops it or f fails.
func (w *resetWork) run(what string, done *int, f func() error) {
	for n := 0; !w.stop.Load(); n++ {
		if err := f(); err != nil {
			w.t.Errorf("%s, after %d: %v", what, n, err)
			return
		}
		*done++
	}
}

// large sends messages from 1 MiB to 64 MiB, in all the ways there are.
func (w *resetWork) large(m *client.Method, buf []byte) error {
	size := 1<<20 + rand.IntN(3<<20)
	switch rand.IntN(4) {
	case 0:
		size = 4<<20 + rand.IntN(12<<20)
	case 1:
		size = min(len(buf), 16<<20+rand.IntN(48<<20))
	}
	opts := [][]client.CallOption{nil, {client.Split()}, {client.Rendezvous(1 << 20)}, {client.Rendezvous(1 << 30)}}[rand.IntN(4)]
	req := buf[:size]
	binary.LittleEndian.PutUint64(req, rand.Uint64())
	binary.LittleEndian.PutUint64(req[size-8:], rand.Uint64())
	answer, err := m.With(opts...).Call(bounded(w.t), req)
	if err != nil {
		return fmt.Errorf("%d bytes: %w", size, err)
	}
	w.calls.Add(1)
	if !flipped(answer, req) {
		return fmt.Errorf("%d bytes: a wrong answer", size)
	}
	return nil
}

// pages has a handler write a part of a region, and another one read all of it.
func (w *resetWork) pages(conn *client.Conn, region *client.Region, ref client.RegionRef, want []byte) error {
	seed, part := rand.Uint64(), rand.IntN(regionParts)
	if _, err := w.callRegions(conn, "b/regions/scatter", append(encoded(seed), byte(part)), ref); err != nil {
		return err
	}
	for i := part; i < len(want)/regionPage; i += regionParts {
		stream(want[i*regionPage:(i+1)*regionPage], seed+uint64(i))
	}
	if !bytes.Equal(region.Bytes(), want) {
		return errors.New("the region has other bytes")
	}
	a, err := w.callRegions(conn, "b/regions/digest", nil, ref)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(a) != digest(want) {
		return errors.New("the handler has read something else")
	}
	return nil
}

// callRegions makes a request that can be made again, because it does the same each time,
// until its handler does not lose what it may do.
func (w *resetWork) callRegions(conn *client.Conn, target string, req []byte, ref client.RegionRef) ([]byte, error) {
	for ctx := bounded(w.t); ; {
		a, err := conn.CallRegions(ctx, target, req, ref)
		if !w.forgetful || !errors.Is(err, client.ErrRemote) || !strings.Contains(err.Error(), server.ErrLost.Error()) {
			return a, err
		}
	}
}

// counter sums up what handlers say of their atomic operations.
type counter struct{ done, unknown uint64 }

func (w *resetWork) count(conn *client.Conn, ref client.RegionRef, sum *counter) error {
	a, err := conn.CallRegions(bounded(w.t), "b/regions/count", encoded(200), ref)
	if err != nil {
		return err
	}
	sum.done += binary.LittleEndian.Uint64(a)
	sum.unknown += binary.LittleEndian.Uint64(a[8:])
	return nil
}

// echo sends messages through a stream and checks each answer. It goes on with a new
// stream from time to time.
func (w *resetWork) echo(m *client.Method, buf []byte) (err error) {
	s, err := m.Stream(w.t.Context())
	if err != nil {
		return err
	}
	const messages = 100
	sums, sizes := make(chan uint64, messages), make(chan int, messages)
	sent := make(chan error, 1)
	go func() {
		defer close(sums)
		src := newSource(rand.Uint64(), 64<<10)
		for range messages {
			msg, answer := src.message(buf)
			if err := s.Send(w.t.Context(), msg); err != nil {
				sent <- err
				return
			}
			sizes <- answer
			sums <- digest(msg)
		}
		sent <- s.CloseSend(w.t.Context())
	}()
	for sum := range sums {
		answer, err := s.Recv(bounded(w.t))
		if err != nil {
			_ = s.Close()
			return errors.Join(err, <-sent)
		}
		w.calls.Add(1)
		if !right(answer, <-sizes, sum) {
			_ = s.Close()
			return errors.Join(errors.New("a wrong answer"), <-sent)
		}
	}
	if _, err := s.Recv(bounded(w.t)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream ended with %w", err)
	}
	return <-sent
}

// While the link between two nodes is cut at random moments, large messages, requests with
// regions and streams go on as if nothing were: nothing fails, nothing is executed twice,
// every byte is right. Only of an atomic operation on a region nobody may know whether it
// was done.
func TestLinkResets(t *testing.T) {
	c, cutters := newCutPair(t, sandbox.Settings{})
	testBesideFaults(t, c, *resets, false, cutting(cutters))
}

// When the nodes forget with each link what requests may do with regions, as when their
// cores are replaced, operations of handlers are lost. Parts of large messages, and requests
// that no handler has started, are sent again by the library.
func TestLinkResetsOfNewCores(t *testing.T) {
	c, cutters := newCutPair(t, sandbox.Settings{})
	for _, k := range cutters {
		k.renew.Store(true)
		k.cut(false) // what came up before does not count
	}
	testBesideFaults(t, c, *resets/2, true, cutting(cutters))
}

// The same while cores are killed, now of the one node and now of the other.
func TestReplacedCoresBesideRegions(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	testBesideFaults(t, c, max(2, *resets/8), true, func() (n int) {
		c.killCore([]string{"a", "b"}[rand.IntN(2)])
		return 1
	})
}

// cutting returns a fault: the link is cut, and now and then it stays away for a while.
func cutting(cutters []*cutter) func() int {
	return func() (n int) {
		gap := rand.IntN(8) == 0
		for _, k := range cutters {
			n += k.cut(gap)
		}
		if gap {
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
			for _, k := range cutters {
				k.join()
			}
		}
		return n
	}
}

// testBesideFaults does all that travels between two nodes, while faults come at random
// moments. forgetful: see resetWork.
func testBesideFaults(t *testing.T, c *cluster, faults int, forgetful bool, fault func() int) {
	service := startService(t, c, "b", "jobs")
	startRegions(t, c)
	c.awaitService("a", "b", "jobs", "stream", 0)
	conn := c.attach("a")
	w := &resetWork{t: t, c: c, forgetful: forgetful}
	method := func(target string) *client.Method {
		m, err := conn.Method(bounded(t), target)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	flip, streams := method("b/jobs/flip"), method("b/jobs/stream")
	for _, name := range []string{"scatter", "digest", "count"} {
		method("b/regions/" + name) // looked up while there is a link
	}
	const size = 4 << 20
	paged, pagedRef := bind(t, conn, size, client.MayWrite|client.MayRead)
	counted, countedRef := bind(t, conn, 4096, client.MayAtomic)
	want := make([]byte, size)
	big := make([]byte, 64<<20)
	stream(big, 7)
	var sum counter
	var done [4]int
	ended := make(chan struct{}, len(done))
	for _, f := range []func(){
		func() { w.run("a large message", &done[0], func() error { return w.large(flip, big) }) },
		func() { w.run("pages", &done[1], func() error { return w.pages(conn, paged, pagedRef, want) }) },
		func() { w.run("a count", &done[2], func() error { return w.count(conn, countedRef, &sum) }) },
		func() {
			buf := make([]byte, 64<<10)
			w.run("a stream", &done[3], func() error { return w.echo(streams, buf) })
		},
	} {
		go func() {
			f()
			ended <- struct{}{}
		}()
	}
	n := 0
	for begin := time.Now(); n < faults && time.Since(begin) < 2*limit && !t.Failed(); {
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // the moment of the fault
		n += fault()
	}
	w.stop.Store(true)
	for range done {
		<-ended
	}
	t.Logf("%d faults, done: %d large messages, %d rounds of pages, %d of counts (%+v), %d streams", n, done[0], done[1], done[2], sum, done[3])
	if got := binary.NativeEndian.Uint64(counted.Bytes()); got < sum.done || got > sum.done+sum.unknown {
		t.Errorf("the sum is %d, of %d that were done and %d that may have been", got, sum.done, sum.unknown)
	}
	for _, name := range []string{"a", "b"} {
		counters := c.status(name).Counters
		t.Logf("node %s: resynced %d, resent %d", name, counters["resynced"], counters["resent"])
		if n := counters["maybe_executed"]; n != 0 {
			t.Errorf("node %s has given up on %d requests", name, n)
		}
	}
	if err := errors.Join(paged.Free(), counted.Free()); err != nil {
		t.Error(err)
	}
	c.awaitQuiet("a", 0)
	c.awaitQuiet("b", 0)
	var said tally
	_ = service.in.Close()
	service.hear(&said)
	service.finish()
	if said.Calls != w.calls.Load() {
		t.Errorf("the service has executed %d, %d were answered", said.Calls, w.calls.Load())
	}
}
