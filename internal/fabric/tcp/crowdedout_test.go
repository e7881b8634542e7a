package tcp

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Answers go before requests, but a peer that reads all the time keeps no request from leaving.
func TestReadsLeaveRoomForRequests(t *testing.T) {
	p := newPairWith(t, Config{SocketBuffer: 256 << 10})
	const size = 512 << 10 // each is more than one writev has
	to, from := p.mem[1].Remote(), p.mem[0].Remote()
	asked, read := 0, 0
	ask := func() {
		for ; asked-read < 8; asked++ {
			n, err := p.ep[1].PostSend([]fabric.SendWR{{
				ID: uint64(asked), Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.mem[1], Len: size},
				RemoteAddr: from.Addr, RemoteKey: from.Key,
			}})
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	var c [16]fabric.Completion
	turn := func() (written bool) {
		ask()
		_, _ = p.pol[1].Wait(0)
		n, _ := p.cq[1].Poll(c[:])
		read += n
		_, _ = p.pol[0].Wait(0)
		n, _ = p.cq[0].Poll(c[:])
		return n > 0
	}
	deadline := time.Now().Add(patience)
	for p.ep[0].tx.answerCount < 2 {
		if turn(); time.Now().After(deadline) {
			t.Fatal("no two answers wait")
		}
	}
	n, err := p.ep[0].PostSend([]fabric.SendWR{{
		ID: 1, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.mem[0], Len: 8}, RemoteAddr: to.Addr, RemoteKey: to.Key,
	}})
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for before := read; !turn(); {
		if read-before > 1000 {
			t.Fatalf("a write of 8 bytes has not left while the peer has read %d times", read-before)
		}
		if time.Now().After(deadline) {
			t.Fatalf("a write of 8 bytes has not left; the peer has read %d times", read-before)
		}
	}
}
