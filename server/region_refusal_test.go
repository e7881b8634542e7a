package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// What an operation must not do it does not do, and the error says why.
func TestRegionRefusals(t *testing.T) {
	eachPlace(t, func(t *testing.T, a, b *daemontest.Node) {
		var x *regions
		// The handler sees it by way of the daemons, which no detector of races knows.
		// foreign is a part of a region of another server of the process.
		var own, foreign atomic.Pointer[server.RegionRef]
		try := func(c *server.Call, i int, what string, want error, do func(r server.RemoteRegion) error) error {
			err := do(c.Region(i))
			if !errors.Is(err, want) || !errors.Is(err, server.ErrRegion) {
				return fmt.Errorf("%s: %w, want %w", what, err, want)
			}
			return nil
		}
		p := bytes.Repeat([]byte{0xff}, 64)
		// References: 0 may be written, 1 read, 2 is for atomics, all of 1000
		// bytes at 24, and 3 has no bytes.
		handlers := map[string]server.Handler{"refused": func(c *server.Call) error {
			if len(c.Regions()) != 4 || c.Region(4).Len() != 0 || c.Region(-1).Rights() != 0 {
				return errors.New("wrong references")
			}
			write := func(off int64) func(r server.RemoteRegion) error {
				return func(r server.RemoteRegion) error { _, err := r.WriteAt(p, off); return err }
			}
			read := func(off int64) func(r server.RemoteRegion) error {
				return func(r server.RemoteRegion) error { _, err := r.ReadAt(make([]byte, 64), off); return err }
			}
			from := func(off int64) func(r server.RemoteRegion) error {
				return func(r server.RemoteRegion) error { return r.WriteFrom(*own.Load(), off) }
			}
			into := func(off int64) func(r server.RemoteRegion) error {
				return func(r server.RemoteRegion) error { return r.ReadInto(*own.Load(), off) }
			}
			add := func(off int64) func(r server.RemoteRegion) error {
				return func(r server.RemoteRegion) error { _, err := r.FetchAdd(off, 1); return err }
			}
			swap := func(off int64) func(r server.RemoteRegion) error {
				return func(r server.RemoteRegion) error { _, err := r.CompareAndSwap(off, 0, 1); return err }
			}
			scatter := func(off int64) func(r server.RemoteRegion) error {
				return func(r server.RemoteRegion) error {
					return r.WriteScattered([]server.Page{{Off: 0, Bytes: p}, {Off: off, Bytes: p}})
				}
			}
			return errors.Join(
				try(c, 9, "no such reference", server.ErrNotPermitted, write(0)),
				try(c, 1, "write without the right", server.ErrNotPermitted, write(0)),
				try(c, 2, "scatter without the right", server.ErrNotPermitted, scatter(0)),
				try(c, 2, "write from without the right", server.ErrNotPermitted, from(0)),
				try(c, 0, "read without the right", server.ErrNotPermitted, read(0)),
				try(c, 2, "read into without the right", server.ErrNotPermitted, into(0)),
				try(c, 0, "add without the right", server.ErrNotPermitted, add(0)),
				try(c, 1, "swap without the right", server.ErrNotPermitted, swap(0)),
				try(c, 0, "write over the end", server.ErrOutOfBounds, write(937)),
				try(c, 0, "write before the start", server.ErrOutOfBounds, write(-1)),
				try(c, 0, "write at the end of numbers", server.ErrOutOfBounds, write(math.MaxInt64-10)),
				try(c, 0, "scatter over the end", server.ErrOutOfBounds, scatter(937)),
				try(c, 0, "scatter before the start", server.ErrOutOfBounds, scatter(-1)),
				try(c, 0, "write from over the end", server.ErrOutOfBounds, from(937)),
				try(c, 1, "read over the end", server.ErrOutOfBounds, read(937)),
				try(c, 1, "read into over the end", server.ErrOutOfBounds, into(math.MaxInt64)),
				try(c, 2, "add over the end", server.ErrOutOfBounds, add(1000)),
				try(c, 2, "add on no word", server.ErrMisaligned, add(4)),
				try(c, 2, "swap on no word", server.ErrMisaligned, swap(1)),
				try(c, 3, "write where nothing is", server.ErrOutOfBounds, write(0)),
				try(c, 0, "write from nothing", server.ErrInvalid, func(r server.RemoteRegion) error { return r.WriteFrom(server.RegionRef{}, 0) }),
				try(c, 0, "write from another server's", server.ErrNotPermitted, func(r server.RemoteRegion) error { return r.WriteFrom(*foreign.Load(), 0) }),
				try(c, 1, "read into another server's", server.ErrNotPermitted, func(r server.RemoteRegion) error { return r.ReadInto(*foreign.Load(), 0) }),
				try(c, 0, "scatter from another server's", server.ErrNotPermitted, func(r server.RemoteRegion) error {
					return r.WriteScattered([]server.Page{{Off: 0, Bytes: p}, {Off: 64, From: *foreign.Load()}})
				}),
				func() error {
					if n, err := c.Region(0).WriteAt(nil, 1000); n != 0 || err != nil {
						return fmt.Errorf("nothing at the end: %d, %w", n, err)
					}
					return c.Region(0).WriteScattered(nil)
				}(),
			)
		}}
		x = newRegions(t, a, b, 4096, handlers)
		r, err := x.srv.AllocRegion(t.Context(), 64)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := r.Ref(0, 64)
		if err != nil {
			t.Fatal(err)
		}
		own.Store(&ref)
		for range 4 { // one of them has the name that foreign has on its own node
			if _, err := x.srv.AllocRegion(t.Context(), 64); err != nil {
				t.Fatal(err)
			}
		}
		theirs, err := attach(t, a).AllocRegion(t.Context(), 64)
		if err != nil {
			t.Fatal(err)
		}
		copy(theirs.Bytes(), "secret")
		other, err := theirs.Ref(0, 64)
		if err != nil {
			t.Fatal(err)
		}
		foreign.Store(&other)
		_, err = x.conn.CallRegions(t.Context(), b.Name+"/t/refused", nil, x.ref(t, 24, 1000, client.MayWrite),
			x.ref(t, 24, 1000, client.MayRead), x.ref(t, 24, 1000, client.MayAtomic), x.ref(t, 24, 0, client.MayWrite))
		if err != nil {
			t.Error(err)
		}
		if !bytes.Equal(x.region.Bytes(), make([]byte, 4096)) {
			t.Error("something was changed")
		}
	})
}

// An operation begins only while its call is open, and a handler that returns waits
// for those that have begun.
func TestRegionExpiry(t *testing.T) {
	eachPlace(t, func(t *testing.T, a, b *daemontest.Node) {
		kept := make(chan server.RemoteRegion, 1)
		written := make(chan error, 1)
		data := noise(512<<10, 3)
		x := newRegions(t, a, b, 1<<20, map[string]server.Handler{
			"keep": func(c *server.Call) error {
				kept <- c.Region(0)
				return nil
			},
			"late": func(c *server.Call) error {
				r, begun := c.Region(0), make(chan struct{})
				go func() {
					_, err := r.WriteAt(data[:1], 0)
					close(begun)
					if err == nil {
						_, err = r.WriteAt(data, 0)
					}
					written <- err
				}()
				<-begun
				return nil
			},
		})
		ref := x.ref(t, 0, 1<<20, client.MayWrite)
		if _, err := x.conn.CallRegions(t.Context(), b.Name+"/t/keep", nil, ref); err != nil {
			t.Fatal(err)
		}
		old := <-kept
		if _, err := old.WriteAt([]byte{1}, 0); !errors.Is(err, server.ErrExpired) {
			t.Errorf("after the call: %v", err)
		}
		for range 20 {
			clear(x.region.Bytes())
			if _, err := x.conn.CallRegions(t.Context(), b.Name+"/t/late", nil, ref); err != nil {
				t.Fatal(err)
			}
			// What the call has left does not change any more.
			after := bytes.Clone(x.region.Bytes())
			switch err := <-written; {
			case err == nil && !bytes.Equal(after[:len(data)], data):
				t.Error("the answer came before the bytes")
			case err != nil && !errors.Is(err, server.ErrExpired):
				t.Error(err)
			}
			if !bytes.Equal(after, x.region.Bytes()) {
				t.Error("bytes changed after the answer")
			}
		}
		// The memory of a call is used for the next ones: the old region stays over.
		if _, err := old.WriteAt([]byte{1}, 0); !errors.Is(err, server.ErrExpired) {
			t.Errorf("after other calls: %v", err)
		}
	})
}

// A region that its owner frees in the middle of a call serves until the end of it,
// and its memory comes back.
func TestRegionFreedInACall(t *testing.T) {
	eachPlace(t, func(t *testing.T, a, b *daemontest.Node) {
		entered, open := make(chan struct{}), make(chan struct{})
		x := newRegions(t, a, b, 1<<20, map[string]server.Handler{
			"hold": func(c *server.Call) error {
				close(entered)
				<-open
				if _, err := c.Region(0).WriteAt([]byte{1, 2, 3}, 0); err != nil {
					return err
				}
				_, err := c.Region(0).FetchAdd(8, 1)
				return err
			},
			"nop": func(*server.Call) error { return nil },
		})
		m, err := x.conn.Method(t.Context(), b.Name+"/t/hold")
		if err != nil {
			t.Fatal(err)
		}
		ref := x.ref(t, 0, 1<<20, client.MayWrite|client.MayAtomic)
		f, err := m.GoRegions(t.Context(), nil, ref)
		if err != nil {
			t.Fatal(err)
		}
		<-entered
		if err := errors.Join(x.region.Free(), x.region.Free()); err != nil {
			t.Fatal(err)
		}
		if x.region.Bytes() != nil {
			t.Error("a free region has bytes")
		}
		if _, err := x.region.Ref(0, 1, client.MayRead); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("a reference to a free region: %v", err)
		}
		if _, err := x.conn.CallRegions(t.Context(), b.Name+"/t/nop", nil, ref); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("a call with a reference to a free region: %v", err)
		}
		close(open)
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		daemontest.Eventually(t, "the memory is given back", func() error {
			st, err := a.Status(t.Context())
			for _, w := range st.Workers {
				if err == nil && w.Role == "client" && w.Regions != 0 {
					err = fmt.Errorf("%+v", w)
				}
			}
			return err
		})
	})
}

func TestRegionLimits(t *testing.T) {
	a, b := daemontest.Pair(t, "[limits]\nregion_bytes=1000000\nregion_count=3\n")
	x := newRegions(t, a, b, 1000, map[string]server.Handler{"write": func(c *server.Call) error {
		_, err := c.Region(0).WriteAt([]byte{1}, 0)
		return err
	}})
	_, err := x.conn.AllocRegion(t.Context(), 1_000_001)
	if !errors.Is(err, client.ErrLimit) || !strings.Contains(err.Error(), "limits.region_bytes") || !strings.Contains(err.Error(), "1000000") {
		t.Errorf("too large: %v", err)
	}
	_, err = x.conn.AllocRegion(t.Context(), 999_000)
	if !errors.Is(err, client.ErrLimit) || !strings.Contains(err.Error(), "limits.region_bytes") {
		t.Errorf("too many bytes: %v", err)
	}
	for range 2 {
		if _, err := x.conn.AllocRegion(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = x.conn.AllocRegion(t.Context(), 1); !errors.Is(err, client.ErrLimit) || !strings.Contains(err.Error(), "limits.region_count") {
		t.Errorf("too many: %v", err)
	}
	if _, err := x.conn.AllocRegion(t.Context(), 0); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an empty region: %v", err)
	}
	// What is freed can be had again, also at once.
	for range 20 {
		if err := x.region.Free(); err != nil {
			t.Fatal(err)
		}
		if x.region, err = x.conn.AllocRegion(t.Context(), 800_000); err != nil {
			t.Fatal(err)
		}
	}
	// The service has no room for its own memory.
	_, err = x.conn.CallRegions(t.Context(), "b/t/write", nil, x.ref(t, 0, 8, client.MayWrite))
	if !errors.Is(err, client.ErrRemote) || !strings.Contains(err.Error(), "limits.region_bytes") {
		t.Errorf("a service without memory: %v", err)
	}
	if _, err := x.conn.CallRegions(t.Context(), "b/t/write", nil, make([]client.RegionRef, 9)...); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("too many references: %v", err)
	}
	if _, err := x.conn.CallRegions(t.Context(), "b/t/write", nil, client.RegionRef{}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a reference to nothing: %v", err)
	}
}
