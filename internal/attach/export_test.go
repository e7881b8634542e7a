package attach

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// BlockIdle is how long a block that nobody uses is kept.
const BlockIdle = blockIdle

// Age makes it so much later for a pool, and looks after it.
func Age(m *Pool, d time.Duration) {
	m.mu.Lock()
	for _, b := range m.free {
		b.since = b.since.Add(-d)
	}
	m.refused = m.refused.Add(-d)
	m.mu.Unlock()
	m.tidy()
}

// Crowd makes all but n bytes of what a pool may have somebody's.
func Crowd(m *Pool, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes = poolBytes - n
}

// Barred makes a pool not ask its daemon for the next hour.
func Barred(m *Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = time.Now().Add(time.Hour)
}

// Idle makes a pool have a block that nobody uses, and that is free already.
func Idle(m *Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, &Block{Region: &Region{session: m.session}, pool: m, since: time.Now()})
	m.count++
}

// Pooled returns how many blocks a pool has.
func Pooled(m *Pool) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// SendRaw sends what need not be a message.
func SendRaw(c *Conn, data []byte) error {
	_, err := c.sock.Write(data)
	return err
}

// Hurry makes a session wait so long only for a daemon that does not read, before it tries again.
func Hurry(s *Session, d time.Duration) { s.conn.patience = d }

// NoRoom makes lanes find no room in the address space until the test lets them.
func NoRoom(t interface{ Cleanup(func()) }) (room *atomic.Bool) {
	room = new(atomic.Bool)
	openSegment = func(fd int, kind shm.Kind, size int) (*shm.Segment, error) {
		if kind == shm.KindLane && !room.Load() {
			return nil, fmt.Errorf("map: %w", unix.ENOMEM)
		}
		return shm.Map(fd, kind, size)
	}
	t.Cleanup(func() { openSegment = shm.Map })
	return room
}
