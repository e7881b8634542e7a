package attach_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// stock is a daemon that makes regions.
type stock struct {
	made, freed atomic.Int32
	// none: it has no room for a region.
	none atomic.Bool
	// heard is how many messages it has dealt with.
	heard chan struct{}
	// hold keeps it from dealing with questions, and asked is how many it holds; nil: it does not.
	hold  atomic.Pointer[chan struct{}]
	asked chan struct{}
}

// openStock attaches to a stock.
func openStock(t *testing.T) (*attach.Session, *stock) {
	t.Helper()
	f := newFake(t)
	k := &stock{heard: make(chan struct{}, 100), asked: make(chan struct{}, 100)}
	done := f.script(func(c *attach.Conn) error {
		if err := f.welcome(c); err != nil {
			return err
		}
		for {
			m, _, err := c.Recv()
			if err != nil {
				return err
			}
			if hold := k.hold.Load(); hold != nil && m.Type == attach.TypeAlloc {
				k.asked <- struct{}{}
				<-*hold
			}
			switch {
			case m.Type == attach.TypeBye:
				return nil
			case m.Type == attach.TypeFree:
				k.freed.Add(1)
			case k.none.Load():
				err = c.Send(&attach.Message{Type: attach.TypeFail, Seq: m.Seq, Fail: attach.FailFor(attach.ErrLimit)})
			default:
				size := int(m.Region.Size)
				var mem *shm.Segment
				if mem, err = shm.Create(shm.CreateOptions{Name: "region", Kind: shm.KindRegion, Size: shm.HeaderSize + size}); err != nil {
					return err
				}
				id := attach.RegionInfo{Index: uint32(k.made.Add(1)), Generation: 1, Size: m.Region.Size}
				err = errors.Join(c.Send(&attach.Message{Type: attach.TypeRegion, Seq: m.Seq, Region: &id}, mem.FD()), mem.Close())
			}
			if err != nil {
				return err
			}
			k.heard <- struct{}{}
		}
	})
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := s.Close()
		s.Release()
		if err = errors.Join(err, <-done); err != nil {
			t.Error(err)
		}
	})
	return s, k
}

// A block is one user's after the other's, and never two users' at a time.
func TestPoolKeepsBlocks(t *testing.T) {
	s, k := openStock(t)
	p := &s.Pool
	if b := p.Take(t.Context(), attach.BlockFrom-1); b != nil {
		t.Error("a block for a few bytes")
	}
	b := p.Take(t.Context(), 1<<20)
	if b == nil || len(b.Mem()) < 1<<20 || p.Kept(1<<20) != nil {
		t.Fatalf("block %+v", b)
	}
	if r, off := s.RegionOf(b.Mem()[77:]); r != b.Region || off != 77 {
		t.Errorf("region %p at %d, want %p", r, off, b.Region)
	}
	if r, _ := s.RegionOf(make([]byte, 10)); r != nil {
		t.Error("own memory is in a region")
	}
	b.Hold()
	b.Release()
	if p.Kept(1<<20) != nil {
		t.Fatal("a block that is held is another's, too")
	}
	b.Release()
	if p.Kept(1<<10) != nil || p.Kept(2<<20) != nil || p.Kept(300<<10) != nil {
		t.Error("a block for messages of other sizes")
	}
	if again := p.Take(t.Context(), 1<<20-5000); again != b {
		t.Errorf("another block %+v", again)
	}
	second := p.Take(t.Context(), 1<<20)
	if second == b || k.made.Load() != 2 {
		t.Errorf("%d regions for two messages at a time", k.made.Load())
	}
	b.Release()
	second.Release()
	attach.Age(p, -time.Hour) // they have just been used, however slow this process is
	if n := attach.Pooled(p); n != 2 {
		t.Errorf("%d blocks are kept", n)
	}
	attach.Age(p, time.Hour+attach.BlockIdle)
	if n := attach.Pooled(p); n != 0 || p.Kept(1<<20) != nil {
		t.Errorf("%d blocks are kept for nobody", n)
	}
	for range 2 + 2 { // regions made, and freed
		<-k.heard
	}
	if n := k.freed.Load(); n != 2 {
		t.Errorf("%d regions were given back", n)
	}
}

// What somebody may go on writing to is nobody's any more.
func TestPoolDiscards(t *testing.T) {
	s, k := openStock(t)
	b := s.Pool.Take(t.Context(), 1<<20)
	b.Hold()
	b.Discard()
	if n := attach.Pooled(&s.Pool); n != 1 {
		t.Errorf("%d blocks while one is held", n)
	}
	b.Release()
	if again := s.Pool.Take(t.Context(), 1<<20); again == nil || again == b {
		t.Error("a block that was discarded is used again")
	}
	for range 3 {
		<-k.heard
	}
	if n := k.freed.Load(); n != 1 {
		t.Errorf("%d regions were given back", n)
	}
}

// A pool has bounds, makes room for its next block, and does without where there is none.
func TestPoolWithoutRoom(t *testing.T) {
	s, k := openStock(t)
	p := &s.Pool
	if b := p.Take(t.Context(), 1<<30); b != nil || k.made.Load() != 0 {
		t.Error("a block beyond all bounds")
	}
	old := p.Take(t.Context(), 1<<20)
	old.Release()
	attach.Crowd(p, 1<<20)
	b := p.Take(t.Context(), 2<<20)
	if b == nil {
		t.Fatal("the block that nobody used has made no room")
	}
	if p.Take(t.Context(), 2<<20) != nil {
		t.Error("more than the bound")
	}
	b.Release()
	k.none.Store(true)
	b = p.Take(t.Context(), 2<<20)
	if b == nil {
		t.Fatal("what is kept needs no daemon")
	}
	attach.Crowd(p, 4<<20)
	attach.Barred(p)
	made := k.made.Load()
	if p.Take(t.Context(), 2<<20) != nil {
		t.Error("a block, and the daemon was not to be asked")
	}
	b.Release()
	// A region that somebody asks for has precedence over blocks that nobody uses.
	if _, err := s.AllocRegion(t.Context(), 5<<20); !errors.Is(err, attach.ErrLimit) {
		t.Errorf("a region without room: %v", err)
	}
	if p.Kept(2<<20) != nil {
		t.Error("the block was kept")
	}
	attach.Age(p, 2*attach.BlockIdle)
	if p.Take(t.Context(), 2<<20) != nil || k.made.Load() != made {
		t.Error("a block without room")
	}
}

// Whoever no longer wants a block does not wait for it, and has nobody else do without.
func TestPoolWithoutPatience(t *testing.T) {
	s, k := openStock(t)
	gone, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	k.hold.Store(&hold)
	taken := make(chan *attach.Block, 1)
	go func() { taken <- s.Pool.Take(gone, 1<<20) }()
	<-k.asked
	cancel()
	if <-taken != nil {
		t.Error("a block that the daemon has not made")
	}
	if s.Pool.Take(gone, 1<<20) != nil {
		t.Error("a block for nobody")
	}
	k.hold.Store(nil)
	close(hold)
	if s.Pool.Take(t.Context(), 1<<20) == nil {
		t.Error("no block: the daemon has refused none")
	}
	for k.freed.Load() == 0 {
		<-k.heard // what comes too late is given back
	}
	if n := k.made.Load(); n != 2 {
		t.Errorf("%d regions were made", n)
	}
}

// A session that has ended has no more blocks, and what is left can be given back.
func TestPoolAfterTheSession(t *testing.T) {
	s, _ := openStock(t)
	b, lost := s.Pool.Take(t.Context(), 1<<20), s.Pool.Take(t.Context(), 1<<20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b.Release()
	lost.Discard()
	attach.Age(&s.Pool, attach.BlockIdle)
	if s.Pool.Take(t.Context(), 1<<20) != nil {
		t.Error("a block of a session that is over")
	}
	var none *attach.Block
	none.Hold()
	none.Discard()
}
