package tcp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// sleepUntilGone lets side i sleep and poll until OpDisconnect and returns all
// that came before it.
func (p *pair) sleepUntilGone(t *testing.T, i int) []fabric.Completion {
	t.Helper()
	var got []fabric.Completion
	var c [4]fabric.Completion
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		n, err := p.cq[i].Poll(c[:])
		must(t, err)
		for _, d := range c[:n] {
			if d.Op == fabric.OpDisconnect {
				return append(got, d)
			}
			got = append(got, d)
		}
		if n > 0 {
			continue
		}
		armed, err := p.cq[i].Arm()
		must(t, err)
		if armed {
			_, err = p.pol[i].Wait(time.Until(deadline))
			must(t, err)
		}
	}
	t.Fatalf("no disconnect after %+v", got)
	return nil
}

// A reset, which is what the kernel sends for a killed process with unread bytes,
// ends an idle and a waiting endpoint alike.
func TestReset(t *testing.T) {
	watchFDs(t)
	for _, starved := range []bool{false, true} {
		p := newPair(t)
		if starved {
			p.starve(t)
		}
		must(t, unix.SetsockoptLinger(p.ep[0].fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
		must(t, p.ep[0].Close())
		got := p.sleepUntilGone(t, 1)
		if last := got[len(got)-1]; len(got) != 1 || last.Status != fabric.StatusFlushed {
			t.Errorf("starved %v: %+v", starved, got)
		}
	}
}

// The orderly end of the peer is seen also while an arrival waits for a receive.
func TestCloseWhileStarved(t *testing.T) {
	watchFDs(t)
	p := newPair(t)
	p.starve(t)
	must(t, p.ep[0].Close())
	if got := p.sleepUntilGone(t, 1); len(got) != 1 {
		t.Errorf("completions %+v", got)
	}
}

// starve makes endpoint 1 wait for a receive. Waiting costs neither system calls
// nor turns.
func (p *pair) starve(t *testing.T) {
	t.Helper()
	wrs := p.batch(1, 64)
	wrs[0].Flags = 0
	n, err := p.ep[0].PostSend(wrs)
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for !p.ep[1].starved {
		_, err := p.pol[1].Wait(patience)
		must(t, err)
		var c [1]fabric.Completion
		if n, err := p.cq[1].Poll(c[:]); n != 0 || err != nil {
			t.Fatal(c, err)
		}
	}
	armed, err := p.cq[1].Arm()
	must(t, err)
	if k, err := p.pol[1].Wait(0); !armed || k != 0 || err != nil {
		t.Fatalf("a starved endpoint keeps its agent awake: armed %v, %d events, %v", armed, k, err)
	}
}

// A socket that takes no more keeps the rest, and sends it when it can.
func TestStuckSocket(t *testing.T) {
	watchFDs(t)
	p := newPair(t)
	p.fill(t, 0)
	if _, err := p.ep[1].PostRecv(make([]fabric.RecvWR, 64)); err != nil {
		t.Fatal(err)
	}
	var c [8]fabric.Completion
	for came, deadline := 0, time.Now().Add(patience); came < 64; {
		for side := range 2 {
			_, err := p.pol[side].Wait(0)
			must(t, err)
			n, err := p.cq[side].Poll(c[:])
			must(t, err)
			came += n
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of 64 came: %+v", came, p.ep[0].Stats())
		}
	}
	if n := p.ep[0].Stats().BytesOut; n != 64*(1<<20+headerSize) {
		t.Errorf("%d bytes sent", n)
	}
}

// A peer that is silent for too long is told from one that has closed the connection, whoever is told of it first: the
// one who reads, the one who writes, after which a read says "end of stream", or nobody, where an arrival waits for a receive.
func TestSilentPeer(t *testing.T) {
	watchFDs(t)
	for _, first := range []string{"read", "write", "starved"} {
		t.Run(first, func(t *testing.T) {
			p := newPair(t)
			if first == "starved" {
				p.starve(t)
			}
			const side = 1
			e := p.ep[side]
			p.fill(t, side)
			must(t, unix.SetsockoptInt(e.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 200)) // not before: it gets stuck while it lives
			polled := []unix.PollFd{{Fd: int32(e.fd)}}
			for deadline := time.Now().Add(patience); polled[0].Revents&unix.POLLERR == 0; {
				if _, err := unix.Poll(polled, int(patience/time.Millisecond)); err != nil && err != unix.EINTR {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatal("the kernel has not given the peer up")
				}
			}
			if first == "write" {
				e.stuck = false // as if there had been room for a moment
				wrs := p.batchFrom(side, 1, 64)
				if n, err := e.PostSend(wrs); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			got := p.sleepUntilGone(t, side)
			if last := got[len(got)-1]; last.Status != fabric.StatusRetryExceeded || last.Vendor != uint32(unix.ETIMEDOUT) {
				t.Errorf("%+v", last)
			}
		})
	}
}

// fill posts until the socket of a side takes no more, which the other one does not read.
func (p *pair) fill(t *testing.T, side int) {
	t.Helper()
	wrs := p.batchFrom(side, 1, 1<<20)
	wrs[0].Flags = 0
	for range 64 {
		if n, err := p.ep[side].PostSend(wrs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if !p.ep[side].stuck {
		t.Fatalf("nothing got stuck: %+v", p.ep[side].Stats())
	}
}
