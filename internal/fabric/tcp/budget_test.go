package tcp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// A peer that reads as fast as it is written to does not keep the agent: one flush writes what is enough for a turn,
// and the endpoint stands in line for the rest.
func TestFlushLeavesWhatIsLarge(t *testing.T) {
	t.Run("plain", func(t *testing.T) { flushLeaves(t, Config{}) })
	t.Run("TLS", func(t *testing.T) { flushLeaves(t, Config{Security: guardOf(t, "test")}) })
}

func flushLeaves(t *testing.T, cfg Config) {
	const size, reads = 4*flushLimit + 100, 3
	p := newPairWith(t, cfg)
	e, q := p.ep[0], p.cq[0].(*cq)
	m, err := e.pd.Register(shm.AlignedBytes(size), fabric.AccessRemoteRead)
	must(t, err)
	defer func() { must(t, m.Close()) }()
	for i := range reads {
		a := e.answer(&frame{op: wireReadAnswer, seq: uint32(i), length: size})
		a.payload, a.region = m.(*region).mem, m.(*region)
	}
	// A socket that takes everything at once.
	socket := e.fd
	defer func() { e.fd = socket }()
	null, err := unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer func() { must(t, unix.Close(null)) }()
	e.fd = null
	const total = reads * (headerSize + size)
	for flushes := 0; e.tx.answerCount > 0; flushes++ {
		if flushes > total/flushLimit {
			t.Fatalf("%d of %d bytes are written after %d flushes", e.stats.BytesOut, total, flushes)
		}
		if flushes > 0 && q.first != e {
			t.Fatalf("%d of %d bytes are written, and the endpoint does not stand in line", e.stats.BytesOut, total)
		}
		before := e.stats.BytesOut
		e.flush()
		// The last writev begins short of the limit, and may itself be as long and a little longer.
		if n := e.stats.BytesOut - before; n > 2*flushLimit {
			t.Fatalf("one flush has written %d bytes", n)
		}
	}
	if e.stats.BytesOut != total || e.stats.FramesOut != reads {
		t.Errorf("%d bytes and %d frames are written, want %d and %d", e.stats.BytesOut, e.stats.FramesOut, total, reads)
	}
}
