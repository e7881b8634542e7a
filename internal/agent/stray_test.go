package agent

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
)

// A send takes a receive that groups need. No rdmad makes one on a lane: a peer that does is not let use them up,
// which would leave a lane that is up and deaf.
func TestStraySend(t *testing.T) {
	a, b, out, in := remoteLaneOver(t, tcp.New(tcp.Config{}))
	settle(a, b)
	for _, e := range []fabric.Endpoint{out.End.Endpoint, in.End.Endpoint} {
		if n, err := e.PostSend([]fabric.SendWR{{ID: 1, Op: fabric.OpSend}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); in.End != nil || out.End != nil; {
		for _, x := range []*side{a, b} {
			_, _ = x.a.Poll.Wait(0)
			x.a.cycle()
		}
		if time.Now().After(deadline) {
			t.Fatalf("lanes up: %v, %v", out.End != nil, in.End != nil)
		}
	}
	if n, m := a.a.Count.ProtocolErrors, b.a.Count.ProtocolErrors; n+m < 1 || n > 1 || m > 1 {
		t.Errorf("protocol errors %d, %d", n, m)
	}
}
