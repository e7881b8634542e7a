package agent

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// parked gives the worker a pager, and returns the end at which its process would wait.
func (w *rigWorker) parked(t *testing.T) (reader int) {
	t.Helper()
	p, reader, err := shm.NewPager()
	if err != nil {
		t.Fatal(err)
	}
	w.view.Rings.Down.SetPager(p)
	t.Cleanup(func() {
		w.view.Rings.Down.SetPager(nil)
		_ = p.Close()
		shm.CloseFDs([]int{reader})
	})
	return reader
}

// watch adds n times n watches to the descriptor.
func watch(t *testing.T, fd, n int) {
	t.Helper()
	var fds []int
	defer func() { t.Cleanup(func() { shm.CloseFDs(fds) }) }()
	var dups []int
	for range n {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds, dups = append(fds, dup), append(dups, dup)
	}
	for range n {
		e, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, e)
		for _, dup := range dups {
			if err := unix.EpollCtl(e, unix.EPOLL_CTL_ADD, dup, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A process that makes its pages take long is held to it, and one beside it is not.
func TestSlowPagesAreOffences(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	service := s.addService()
	slow, quick := s.addWorker(4), s.addWorker(5)
	told := map[int]int{}
	s.d.Strikes = StrikeRules{Worker: 64, OnWorker: func(w *Worker, n int, _ Misdeed) { told[w.ID] = n }}
	quick.parked(t)
	watch(t, slow.parked(t), 300)
	const most = 1000
	rounds := 0
	for ; rounds < most && told[slow.id] == 0; rounds++ {
		for _, w := range []*rigWorker{slow, quick} {
			x := s.signedCall(t, w, out.Ring)
			w.rings.Down.PreparePark()
			settle(s)
			s.work(service, out.Ring, 1)
			settle(s)
			if !x.answered(t, 0) {
				t.Fatal("no answer")
			}
			for more := true; more; {
				_, more = w.rings.Down.Pop()
			}
		}
	}
	t.Logf("%d pages; offences: %d and %d", rounds, slow.view.offences.Total, quick.view.offences.Total)
	if told[slow.id] == 0 {
		t.Errorf("after %d pages of a process that watches its socket 90,000 times it has %d offences", rounds, slow.view.offences.Total)
	}
	if n := quick.view.offences.Total; n >= 64 {
		t.Errorf("the process beside it has %d", n)
	}
}

// Slow pages are offences where there is one after the other, and not what a host takes from a virtual machine now and then.
func TestPaging(t *testing.T) {
	const second = int64(time.Second)
	begin := 1000 * second
	for _, c := range []struct {
		name  string
		took  time.Duration
		every int64
		pages int
		most  int // offences
		least int
	}{
		{"once, for very long", 10 * time.Second, second, 1, 0, 0},
		{"twice in a row, for very long", 10 * time.Second, second / 100, 2, 0, 0},
		{"8 ms of the host's twice a second", 8 * time.Millisecond, second / 2, 100, 0, 0},
		{"20 ms of the host's once a second", 20 * time.Millisecond, second, 100, 0, 0},
		{"2 ms every 50 ms", 2 * time.Millisecond, second / 20, 1000, 0, 0},
		{"20 ms each", 20 * time.Millisecond, second / 50, 10, 200, 64},
		{"2 ms each", 2 * time.Millisecond, second / 500, 60, 100, 64},
		{"8 ms, half of the time", 8 * time.Millisecond, second / 60, 20, 200, 64},
	} {
		var p paging
		offences := 0
		for n := range c.pages {
			offences += p.slow(c.took, begin+int64(n)*c.every)
		}
		if offences > c.most || offences < c.least {
			t.Errorf("%s: %d offences by %d pages", c.name, offences, c.pages)
		}
	}
	// What was owed is forgotten.
	var p paging
	for n := range 100 {
		p.slow(longestPage, begin+int64(n))
	}
	if n := p.slow(longestPage, begin+3*second); n != 0 {
		t.Errorf("three seconds after many slow pages one is %d offences", n)
	}
}
