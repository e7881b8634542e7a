//go:build verbs && cgo && linux

package verbs

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/poller"
)

// place gives p something to point to.
func place[T any](p **T) *T {
	*p = new(T)
	return *p
}

// put stores a number where C has an int.
func put[T ~int32](p *T, v int) { *p = T(v) }

// The completion channel of a device that was taken away is ready for ever and cannot be read (EPOLLERR, EIO), like a
// pipe that nobody writes to. Whoever waits for it sleeps all the same.
func TestChannelOfARemovedDevice(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	p, err := poller.New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	q := &cq{dev: &Device{queues: map[*cq]struct{}{}}, lib: &queue{}, poller: p}
	put(&place(&q.lib.ch).fd, fds[0])
	if err := q.watch(); err != nil {
		t.Fatal(err)
	}
	defer q.news.Close()
	const tries = 100
	woken := 0
	for range tries {
		n, err := p.Wait(time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			woken++
		}
	}
	if woken > 1 {
		t.Errorf("of %d sleeps %d ended at once", tries, woken)
	}
}
