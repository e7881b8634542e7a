package tcp

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// work lets both ends work as agents do, end 1 every third time only, until end 0 has posted
// everything and has n completions, all of them good.
func work(t *testing.T, p *pair, wrs []fabric.SendWR, n int) {
	t.Helper()
	var c [64]fabric.Completion
	deadline := time.Now().Add(patience)
	for got, i := 0, 0; got < n; i++ {
		taken, err := p.ep[0].PostSend(wrs)
		if err != nil && err != fabric.ErrQueueFull {
			t.Fatal(err)
		}
		wrs = wrs[taken:]
		for end := range 2 {
			if end == 1 && i%3 != 0 {
				continue
			}
			if i/3%2 == 0 {
				p.cq[end].(fabric.Glancer).Glance() // as agents do when they have yielded
			} else {
				_, err := p.pol[end].Wait(0)
				must(t, err)
			}
			k, err := p.cq[end].Poll(c[:])
			must(t, err)
			for _, d := range c[:k] {
				if d.Status != fabric.StatusSuccess {
					t.Fatalf("after %d completions, end %d: %+v", got, end, d)
				}
			}
			if end == 0 {
				got += k
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d", got, n)
		}
	}
}

// The answer to a read may come while the records behind the read's still wait for the socket.
func TestAnswerAheadOfTheBooks(t *testing.T) {
	p := newPairWith(t, Config{SocketBuffer: 64 << 10, Security: guardOf(t, "test")})
	to := p.mem[1].Remote()
	var wrs []fabric.SendWR
	for i := range uint64(120) { // writes with a fence behind each
		wrs = append(wrs,
			fabric.SendWR{ID: 2 * i, Op: fabric.OpWrite, Local: fabric.Local{Region: p.mem[0], Len: 64 << 10}, RemoteAddr: to.Addr, RemoteKey: to.Key},
			fabric.SendWR{ID: 2*i + 1, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.mem[0], Offset: 1<<20 - 8, Len: 1}, RemoteAddr: to.Addr, RemoteKey: to.Key})
	}
	work(t, p, wrs, 120)
}

// A read that takes the place of an answered one is not one too many, although the records behind
// that answer still wait for the socket.
func TestReadAheadOfTheBooks(t *testing.T) {
	p := newPairWith(t, Config{SocketBuffer: 64 << 10, Security: guardOf(t, "test")})
	to := p.mem[1].Remote()
	var wrs []fabric.SendWR
	for i := range uint64(240) {
		wrs = append(wrs, fabric.SendWR{ID: i, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.mem[0], Len: 20000}, RemoteAddr: to.Addr, RemoteKey: to.Key})
	}
	work(t, p, wrs, 240)
}
