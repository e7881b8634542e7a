package shm_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// newPager returns a pager and its reader, which the test must close.
func newPager(t *testing.T) (p *shm.Pager, reader int) {
	t.Helper()
	p, reader, err := shm.NewPager()
	if err != nil {
		t.Fatal(err)
	}
	return p, reader
}

// pages returns both ends of a pager.
func pages(t *testing.T) (*shm.Pager, *shm.Pages) {
	t.Helper()
	p, reader := newPager(t)
	r, err := shm.OpenPages(reader)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.Close(), r.Close() })
	return p, r
}

// ends checks that a wait ends that another goroutine is to end.
func ends(t *testing.T, what string, r *shm.Pages, end func()) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- r.Wait() }()
	end()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s has not ended a wait", what)
		return nil
	}
}

func TestPagerEndsWaits(t *testing.T) {
	p, r := pages(t)
	for range 100 {
		r.Listen()
		if err := ends(t, "a page", r, p.Page); err != nil {
			t.Fatalf("after a page: %v", err)
		}
		if err := ends(t, "an interruption", r, r.Interrupt); err != nil {
			t.Fatalf("after an interruption: %v", err)
		}
	}
	// An interruption lasts until somebody listens again.
	if err := r.Wait(); err != nil {
		t.Fatalf("after an interruption of before: %v", err)
	}
	r.Listen()
	if err := ends(t, "the end of the pager", r, func() { _ = p.Close() }); err == nil {
		t.Error("no error although the pager is closed")
	}
}

func TestPagesEndWaitsWhenTheyClose(t *testing.T) {
	_, r := pages(t)
	if err := ends(t, "Close", r, func() { _ = r.Close() }); err == nil {
		t.Error("no error although the pages are closed")
	}
	r.Interrupt() // of pages that are closed already
	r.Listen()
	if err := r.Wait(); err == nil {
		t.Error("a wait for pages that are closed has succeeded")
	}
}

// Who reads no pages, or leaves, does not hold up the pager.
func TestPagerNeverBlocks(t *testing.T) {
	p, reader := newPager(t)
	defer p.Close()
	if err := unix.SetNonblock(reader, false); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 1 << 15 { // far more than a socket holds
			p.Page()
		}
		_ = unix.Close(reader)
		p.Page()
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a page to a full socket has not returned")
	}
}

// The other end has nothing to say, and nothing of what it tries is kept.
func TestPagerHearsNothing(t *testing.T) {
	p, reader := newPager(t)
	defer p.Close()
	defer unix.Close(reader)
	if err := unix.Sendto(reader, []byte("x"), unix.MSG_NOSIGNAL, nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("sent to a pager: %v", err)
	}
}

// Whatever an Interrupt and a Listen have done at the same moment, a wait that nobody ends
// afterwards is one.
func TestInterruptBesideListen(t *testing.T) {
	p, r := pages(t)
	for range 300 {
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range 20 {
				r.Interrupt()
			}
		}()
		for running := true; running; {
			select {
			case <-over:
				running = false
			default:
				r.Listen()
			}
		}
		waits := 0
		for paged := time.AfterFunc(time.Millisecond, p.Page); ; waits++ {
			r.Listen()
			if err := r.Wait(); err != nil {
				t.Fatal(err)
			}
			if !paged.Stop() {
				break
			}
			paged.Reset(time.Millisecond)
			if waits > 2 {
				t.Fatal("waits that nobody has ended return at once")
			}
		}
	}
}

// A descriptor of which nobody could interrupt a wait is refused, and closed.
func TestPagesNeedAPoller(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := shm.OpenPages(fd); err == nil {
		_ = r.Close()
		t.Fatal("a file was taken for a pager's end")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor is still open: %v", err)
	}
	if _, err := shm.OpenPages(-1); err == nil {
		t.Error("no descriptor was taken for a pager's end")
	}
}

// A nap that lasts is one to park for, from ParkAfter on, and so are those after it until
// some in a row have taken no time.
func TestNapParks(t *testing.T) {
	p, r := pages(t)
	var n shm.Nap
	word := new(atomic.Uint32)
	if n.Lasting() {
		t.Fatal("before any wait one has lasted")
	}
	for deadline := time.Now().Add(time.Minute); !n.Lasting(); {
		n.Sleep(word, 0, shm.ParkAfter)
		if time.Now().After(deadline) {
			t.Fatal("a wait of a minute has not lasted")
		}
	}
	paged := make(chan struct{})
	go func() {
		defer close(paged)
		word.Store(1)
		p.Page()
	}()
	if err := n.Park(r, word, 0); err != nil {
		t.Fatal(err)
	}
	waits := 0
	for ; n.Lasting(); waits++ {
		if err := n.Park(r, word, 0); err != nil || word.Load() != 1 {
			t.Fatalf("a word that has changed: %v", err) // without a page: it does not wait
		}
		if waits == 1000 {
			t.Fatal("after many waits that took no time waits last still")
		}
	}
	if waits < 4 {
		t.Errorf("after %d waits that took no time none lasts any more", waits)
	}
	<-paged
	_ = p.Close()
	_ = r.Close()
	if err := n.Park(r, word, 1); err == nil {
		t.Error("no error although the pages are closed")
	}
}

// The end of a pager ends a wait that has begun, and who waits is told.
func TestPagerEndsWithinWait(t *testing.T) {
	p, r := pages(t)
	word := new(atomic.Uint32)
	ended := make(chan error, 1)
	r.Listen()
	go func() { ended <- r.WaitWhile(word, 0) }()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		if slices.ContainsFunc(stacks, func(s string) bool { return strings.Contains(s, "[IO wait]") && strings.Contains(s, "WaitWhile(") }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	_ = p.Close()
	if err := <-ended; !errors.Is(err, io.EOF) || err == io.EOF {
		t.Errorf("the end of the pager: %v", err)
	}
}

// However many pages are not read, because the word says what there is to say, the socket has room for the next one: who waits
// would miss it otherwise.
func TestUnreadPages(t *testing.T) {
	socks, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socks[1])
	r, err := shm.OpenPages(socks[0])
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := unix.SetsockoptInt(socks[1], unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil {
		t.Fatal(err)
	}
	word := new(atomic.Uint32)
	page := func() {
		word.Add(1)
		if err := unix.Sendto(socks[1], []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil); err != nil {
			t.Errorf("a page: %v", err)
		}
	}
	unread := 0
	for n := range 300 {
		old := word.Load()
		r.Listen()
		page() // before the wait
		if n%7 > 0 {
			if err := r.WaitWhile(word, old); err != nil {
				t.Fatal(err)
			}
		}
		old = word.Load()
		paged := make(chan struct{})
		r.Listen()
		go func() { // and perhaps within it
			defer close(paged)
			page()
		}()
		for waited := false; !waited || word.Load() == old; waited = true {
			if err := r.WaitWhile(word, old); err != nil {
				t.Fatal(err)
			}
		}
		<-paged
		if left, err := unix.IoctlGetInt(socks[0], unix.TIOCINQ); err != nil {
			t.Fatal(err)
		} else if left > 0 {
			unread++
		}
	}
	if unread < 150 {
		t.Errorf("after %d of 300 waits pages were left unread: to read each costs more than to wait", unread)
	}
}

// The thread that is woken by a page may have been the one that waited for all descriptors of
// the process. Somebody else does so while it sleeps behind the scheduler's back.
func TestDescriptorsAreLookedAtAfterPark(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	writer := os.NewFile(uintptr(ends[1]), "pipe")
	defer writer.Close()
	r, err := shm.OpenPages(ends[0])
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	other, others := pages(t)
	var seen atomic.Int64
	over := make(chan struct{})
	go func() {
		defer close(over)
		for others.Wait() == nil {
			seen.Add(1)
		}
	}()
	word := new(atomic.Uint32)
	for range 3 {
		// Another process, because a timer of this one would not leave it at rest.
		pager := exec.CommandContext(t.Context(), "sh", "-c", "sleep 0.1; printf x")
		pager.Stdout = writer
		if err := pager.Start(); err != nil {
			t.Fatal(err)
		}
		r.Listen()
		if err := new(shm.Nap).Park(r, word, 0); err != nil {
			t.Fatal(err)
		}
		before := seen.Load()
		other.Page()
		for end := shm.Nanotime() + int64(30*time.Second); seen.Load() == before; {
			new(shm.Nap).Sleep(word, 0, 5*time.Millisecond) // the first sleep of a wait
			if shm.Nanotime() > end {
				t.Fatal("nobody has seen for 30 s what a descriptor has brought")
			}
		}
		if err := pager.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	_ = other.Close()
	<-over
}
