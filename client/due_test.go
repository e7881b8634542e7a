package client

import (
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// dueLane is a lane with a quota, whose ring nobody else has.
func dueLane(t *testing.T, quota int) *lane {
	t.Helper()
	g := slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4}
	r, err := slots.NewRing(make([]byte, g.SegmentSize()), g)
	if err != nil {
		t.Fatal(err)
	}
	conn := &Conn{id: 1, session: &attach.Session{Bells: slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize))}}
	return &lane{conn: conn, ring: r, quota: quota, claimers: claimers{turn: make(chan struct{}, 1)}}
}

// release frees a run as every part of the client does.
func (l *lane) release(u slots.Run) {
	l.due.credit(u.Len)
	l.ring.Free(u.Index, u.Len)
}

// What the process frees itself is counted without a look at the ring, and once.
func TestDueCountsWhatIsFreed(t *testing.T) {
	l := dueLane(t, 4)
	var runs []slots.Run
	for range 4 {
		u, err := l.tryClaim(1, false)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, u)
	}
	if _, err := l.tryClaim(1, true); err == nil {
		t.Fatal("a fifth slot under a quota of four")
	}
	for _, u := range runs[:2] {
		l.release(u)
	}
	l.due.mu.Lock()
	ok, left := l.due.adjust(2, 4, l.ring.Share()), l.due.left
	l.due.mu.Unlock()
	if !ok || left != 2 {
		t.Errorf("after two of four slots were freed %d are left, want 2", left)
	}
}

// A claim that began before there was a share, and finds one, adds nothing to what others of the
// process may still claim, who have counted meanwhile.
func TestClaimsThatAShareOvertakes(t *testing.T) {
	const share = 8
	l := dueLane(t, 0)
	l.due.limited.Store(true) // there was one before
	l.ring.SetShare(l.ring.Share().Next(share))
	if _, err := l.tryClaim(1, false); err != nil {
		t.Fatal(err)
	}
	if _, stale, err := l.claimUnder(0, 4); !stale || err != nil {
		t.Fatal(stale, err)
	}
	for range 2 * share {
		if _, err := l.tryClaim(1, true); err != nil {
			break
		}
	}
	if n := l.ring.Held(l.conn.id); n != share {
		t.Errorf("holds %d slots under a share of %d", n, share)
	}
}

// What is held in a lane that the daemon has lost is nothing of the quota of bytes.
func TestLostLanesHoldNoQuota(t *testing.T) {
	lost, other := dueLane(t, 0), dueLane(t, 0)
	c := lost.conn
	other.conn, c.bytes.most, c.opened = c, 4*128, []*lane{lost, other}
	for range 4 {
		if _, err := lost.tryClaim(1, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.tryClaim(1, true); err == nil {
		t.Fatal("five slots under a quota of four")
	}
	c.lanes[3].Store(lost)
	c.wait.conn = c
	c.session.Rings = slots.NewWorkerRings(shm.AlignedBytes(slots.WorkerSegmentSize))
	c.laneClosed(3, nil)
	for range 4 {
		if _, err := other.tryClaim(1, true); err != nil {
			t.Fatal(err)
		}
	}
}

// However claims, frees and counts meet, no slot is due twice.
func TestDueNeverExceedsTheLimit(t *testing.T) {
	const limit = 5
	l := dueLane(t, limit)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				if u, err := l.tryClaim(1, true); err == nil {
					l.release(u)
				}
			}
		})
	}
	wg.Wait()
	l.due.mu.Lock()
	defer l.due.mu.Unlock()
	if l.due.adjust(1, limit, l.ring.Share()); l.due.left > limit {
		t.Errorf("%d slots are left of %d", l.due.left, limit)
	}
	if l.due.count(l, limit, l.ring.Share()); l.due.left != limit {
		t.Errorf("%d slots are left of %d when none is held", l.due.left, limit)
	}
}

// Slots that were claimed while there was no limit are counted when there is one.
func TestDueCountsWhatHadNoLimit(t *testing.T) {
	l := dueLane(t, 0)
	for range 3 {
		if _, err := l.tryClaim(1, false); err != nil {
			t.Fatal(err)
		}
	}
	l.ring.SetShare(slots.Share(0).Next(4))
	if _, err := l.tryClaim(1, false); err != nil {
		t.Fatal(err)
	}
	if _, err := l.tryClaim(1, true); err == nil {
		t.Error("a fifth slot under a share of four")
	}
	l.ring.SetShare(l.ring.Share().Next(0))
	if _, err := l.tryClaim(1, false); err != nil {
		t.Fatal(err)
	}
	l.ring.SetShare(l.ring.Share().Next(6))
	if _, err := l.tryClaim(1, false); err != nil {
		t.Error("a sixth slot under a share of six:", err)
	}
	if _, err := l.tryClaim(1, true); err == nil {
		t.Error("a seventh slot under a share of six")
	}
}

// However long ago a process has looked at the share: what it claims is within the one
// that the ring has after the claim, or is given back.
func TestClaimUnderAnOldShare(t *testing.T) {
	l := dueLane(t, 0)
	none := l.ring.Share()
	for range 4 {
		if _, err := l.tryClaim(1, false); err != nil {
			t.Fatal(err)
		}
	}
	four := none.Next(4)
	for what, c := range map[string]struct {
		seen, now slots.Share
		stale     bool
	}{
		"none then":         {none, four, true},
		"a larger one then": {none.Next(8), four, true},
		"the same":          {four, four, false},
		"a smaller one":     {none.Next(2), four, false},
		"none now":          {four, four.Next(0), false},
	} {
		l.ring.SetShare(c.now)
		held := l.ring.Held(l.conn.id)
		u, stale, err := l.claimUnder(c.seen, 1)
		if err != nil || stale != c.stale {
			t.Errorf("%s: stale %t, %v", what, stale, err)
		}
		if !stale {
			l.release(u)
		}
		if n := l.ring.Held(l.conn.id); n != held {
			t.Errorf("%s: %d slots are held, %d before", what, n, held)
		}
	}
	l.ring.SetShare(four.Next(4))
	if _, err := l.tryClaim(1, true); err == nil {
		t.Error("a fifth slot under a share of four")
	}
}
