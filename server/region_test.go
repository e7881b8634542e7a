package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// regions is a service and a caller with a region, on nodes of their own or on one.
type regions struct {
	srv    *server.Server
	conn   *client.Conn
	region *client.Region
}

// newRegions makes a service whose methods t/... are the handlers, and a caller.
func newRegions(t testing.TB, caller, service *daemontest.Node, size int, handlers map[string]server.Handler) *regions {
	t.Helper()
	x := &regions{srv: attach(t, service, server.Workers(8))}
	for name, h := range handlers {
		handle(t, x.srv, name, h)
	}
	start(t, x.srv)
	var err error
	if x.conn, err = client.Attach(t.Context(), caller.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.conn.Close() })
	for name := range handlers {
		daemontest.Eventually(t, "look up "+name, func() error {
			_, err := x.conn.Method(t.Context(), service.Name+"/t/"+name)
			return err
		})
	}
	if x.region, err = x.conn.AllocRegion(t.Context(), size); err != nil {
		t.Fatal(err)
	}
	return x
}

// ref makes a reference to a part of the caller's region.
func (x *regions) ref(t testing.TB, off, n int, rights client.Rights) client.RegionRef {
	t.Helper()
	ref, err := x.region.Ref(off, n, rights)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// noise fills a slice with random bytes.
func noise(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// eachPlace runs a test with caller and service on two nodes and on one.
func eachPlace(t *testing.T, f func(t *testing.T, caller, service *daemontest.Node)) {
	t.Run("remote", func(t *testing.T) {
		a, b := daemontest.Pair(t, "")
		f(t, a, b)
	})
	t.Run("local", func(t *testing.T) {
		a, _ := daemontest.Pair(t, "")
		f(t, a, a)
	})
}

// Bytes go where they are told and come from where they are, and nothing else moves.
func TestRegionBytes(t *testing.T) {
	eachPlace(t, func(t *testing.T, a, b *daemontest.Node) {
		const size = 1 << 20
		data := noise(size, 7)
		var x *regions
		x = newRegions(t, a, b, size, map[string]server.Handler{
			"write": func(c *server.Call) error {
				if len(c.Request()) != 5 || c.NumRegions() != 1 || c.Region(0).Len() != 700_000 || c.Region(0).Rights() != server.MayWrite {
					return errors.New("not what was sent")
				}
				n, err := c.Region(0).WriteAt(data[:600_000], 50_000)
				if err == nil && n != 600_000 {
					err = errors.New("short")
				}
				return err
			},
			"read": func(c *server.Call) error {
				got := make([]byte, 300_001)
				if n, err := c.Region(0).ReadAt(got, 3); err != nil || n != len(got) {
					return errors.Join(err, errors.New("short"))
				}
				if !bytes.Equal(got, data[11_003:11_003+300_001]) {
					return errors.New("wrong bytes")
				}
				return c.Reply([]byte("right"))
			},
			"direct": func(c *server.Call) error {
				r, err := x.srv.AllocRegion(c.Context(), size)
				if err != nil {
					return err
				}
				copy(r.Bytes(), data)
				src, err := r.Ref(100, 400_000)
				if err != nil {
					return err
				}
				if err := c.Region(0).WriteFrom(src, 1_000); err != nil {
					return err
				}
				dst, err := r.Ref(500_000, 400_000)
				if err != nil {
					return err
				}
				if err := c.Region(0).ReadInto(dst, 1_000); err != nil {
					return err
				}
				if !bytes.Equal(r.Bytes()[500_000:900_000], data[100:400_100]) {
					return errors.New("wrong bytes came back")
				}
				return r.Free()
			},
		})
		ctx := context.Background()
		if _, err := x.conn.CallRegions(ctx, b.Name+"/t/write", []byte("12345"), x.ref(t, 100_000, 700_000, client.MayWrite)); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, size)
		copy(want[150_000:], data[:600_000])
		if !bytes.Equal(x.region.Bytes(), want) {
			t.Fatal("a write did something else")
		}
		copy(x.region.Bytes(), data)
		answer, err := x.conn.CallRegions(ctx, b.Name+"/t/read", nil, x.ref(t, 11_000, 400_000, client.MayRead))
		if err != nil || string(answer) != "right" {
			t.Fatal(string(answer), err)
		}
		if !bytes.Equal(x.region.Bytes(), data) {
			t.Fatal("a read changed something")
		}
		clear(x.region.Bytes())
		if _, err := x.conn.CallRegions(ctx, b.Name+"/t/direct", nil, x.ref(t, 0, size, client.MayRead|client.MayWrite)); err != nil {
			t.Fatal(err)
		}
		clear(want)
		copy(want[1_000:], data[100:400_100])
		if !bytes.Equal(x.region.Bytes(), want) {
			t.Fatal("a direct write did something else")
		}
	})
}

// Handlers that add to the same number make the sum.
func TestRegionAtomics(t *testing.T) {
	eachPlace(t, func(t *testing.T, a, b *daemontest.Node) {
		const calls, adds = 8, 50
		x := newRegions(t, a, b, 4096, map[string]server.Handler{
			"add": func(c *server.Call) error {
				for range adds {
					if _, err := c.Region(0).FetchAdd(8, 3); err != nil {
						return err
					}
					for {
						old, err := c.Region(0).FetchAdd(16, 0)
						if err != nil {
							return err
						}
						found, err := c.Region(0).CompareAndSwap(16, old, old+5)
						if err != nil {
							return err
						}
						if found == old {
							break
						}
					}
				}
				return nil
			},
		})
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				if _, err := x.conn.CallRegions(t.Context(), b.Name+"/t/add", nil, x.ref(t, 64, 64, client.MayAtomic)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		want := make([]byte, 4096)
		put := func(off int, n uint64) {
			for i := range 8 {
				want[off+i] = byte(n >> (8 * i))
			}
		}
		put(72, 3*calls*adds)
		put(80, 5*calls*adds)
		if !bytes.Equal(x.region.Bytes(), want) {
			t.Errorf("the numbers are % x", x.region.Bytes()[64:96])
		}
	})
}

// With tcp, operations of handlers of the caller's own node and of another one are atomic
// with regard to each other.
func TestRegionAtomicsOfTwoNodes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	add := map[string]server.Handler{"add": func(c *server.Call) error {
		for range 500 {
			if _, err := c.Region(0).FetchAdd(0, 1); err != nil {
				return err
			}
		}
		return nil
	}}
	x := newRegions(t, a, b, 4096, add)
	newRegions(t, a, a, 4096, add)
	ref := x.ref(t, 0, 8, client.MayAtomic)
	var all sync.WaitGroup
	for _, node := range []string{"a", "b", "a", "b"} {
		all.Go(func() {
			if _, err := x.conn.CallRegions(t.Context(), node+"/t/add", nil, ref); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if sum := binary.NativeEndian.Uint64(x.region.Bytes()); sum != 2000 {
		t.Errorf("the sum is %d", sum)
	}
}
