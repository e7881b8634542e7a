package attach_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// newMemory makes the segment of a region of n bytes.
func newMemory(t *testing.T, n int) *shm.Segment {
	t.Helper()
	s, err := shm.Create(shm.CreateOptions{Name: "region", Kind: shm.KindRegion, Size: shm.HeaderSize + n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A region is told by its daemon, exported once for each node, and freed once.
func TestRegion(t *testing.T) {
	f := newFake(t)
	mem := newMemory(t, 8192)
	exports, frees := 0, 0
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		for {
			m, _, err := c.Recv()
			if err != nil {
				return err
			}
			switch m.Type {
			case attach.TypeAlloc:
				err = c.Send(&attach.Message{Type: attach.TypeRegion, Seq: m.Seq, Region: &attach.RegionInfo{Index: 3, Generation: 4, Size: m.Region.Size}}, mem.FD())
			case attach.TypeExport:
				exports++
				err = c.Send(&attach.Message{Type: attach.TypeExported, Seq: m.Seq})
			case attach.TypeFree:
				frees++
			case attach.TypeBye:
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if _, err := s.AllocRegion(t.Context(), 0); !errors.Is(err, attach.ErrInvalid) {
		t.Errorf("an empty region: %v", err)
	}
	r, err := s.AllocRegion(t.Context(), 5000)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID() != slots.MakeRegionID(3, 4) || r.Len() != 5000 || len(r.Bytes()) != 5000 {
		t.Errorf("region %#x of %d bytes", uint64(r.ID()), len(r.Bytes()))
	}
	mem.Bytes()[shm.HeaderSize] = 9
	if r.Bytes()[0] != 9 {
		t.Error("it is other memory")
	}
	for _, bad := range [][3]int{{-1, 1, 1}, {0, -1, 1}, {0, 5001, 1}, {5000, 1, 1}, {1, 5000, 1}, {0, 1, 0}, {0, 1, 8}} {
		if _, err := r.Ref(bad[0], bad[1], slots.Rights(bad[2])); !errors.Is(err, attach.ErrInvalid) {
			t.Errorf("a reference to %v: %v", bad, err)
		}
	}
	if ref, err := r.Ref(1, 4999, slots.AllRights); err != nil || ref != (slots.Ref{Region: r.ID(), Rights: 7, Offset: 1, Length: 4999}) {
		t.Errorf("reference %+v, %v", ref, err)
	}
	for _, node := range []string{"a", "b", "a", "b"} {
		if err := r.Export(t.Context(), node); err != nil {
			t.Error(err)
		}
	}
	r.Forgotten("b")
	if err := errors.Join(r.Export(t.Context(), "b"), r.Free(), r.Free()); err != nil {
		t.Error(err)
	}
	if err := r.Export(t.Context(), "b"); !errors.Is(err, attach.ErrInvalid) || r.Bytes() != nil {
		t.Errorf("after free: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil || exports != 3 || frees != 1 {
		t.Errorf("%d exports, %d frees, %v", exports, frees, err)
	}
}

// A daemon whose region is none ends the session, and no descriptor stays open.
func TestBadRegions(t *testing.T) {
	f := newFake(t)
	mem := newMemory(t, 8192)
	before := leaktest.Descriptors(t)
	for name, c := range map[string]struct {
		m    attach.Message
		fds  []int
		want error
	}{
		"no descriptor":   {attach.Message{Region: &attach.RegionInfo{Size: 10}}, nil, attach.ErrInvalid},
		"no region":       {attach.Message{}, []int{mem.FD()}, attach.ErrInvalid},
		"two descriptors": {attach.Message{Region: &attach.RegionInfo{Size: 10}}, []int{mem.FD(), mem.FD()}, attach.ErrInvalid},
		"too small":       {attach.Message{Region: &attach.RegionInfo{Size: 8193}}, []int{mem.FD()}, shm.ErrBadSegment},
		"another kind":    {attach.Message{Region: &attach.RegionInfo{Size: 10}}, []int{f.segs[shm.KindLane].FD()}, shm.ErrBadSegment},
		"nobody asked":    {attach.Message{Seq: 77, Region: &attach.RegionInfo{Size: 10}}, []int{mem.FD()}, attach.ErrClosed},
		"less":            {attach.Message{Region: &attach.RegionInfo{Size: 9}}, []int{mem.FD()}, attach.ErrInvalid},
	} {
		done := f.script(func(conn *attach.Conn) error {
			if err := f.welcome(conn); err != nil {
				return err
			}
			m, _, err := conn.Recv()
			if err != nil {
				return err
			}
			c.m.Type = attach.TypeRegion
			if c.m.Seq == 0 {
				c.m.Seq = m.Seq
			}
			return conn.Send(&c.m, c.fds...)
		})
		s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if _, err := s.AllocRegion(ctx, 10); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: daemon: %v", name, err)
		}
		_ = s.Close()
		s.Release()
	}
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors are open, %d before", now, before)
	}
}
