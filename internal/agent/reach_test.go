package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/slots"
)

// What the peer of a lane may do with the ring is write: a read ends the connection and
// brings nothing. The key of another lane to the same peer opens nothing at all.
func TestLaneIsWriteOnlyAndItsOwn(t *testing.T) {
	for name, change := range map[string]func(wr *fabric.SendWR, other *LaneEndpoint){
		"read":   func(wr *fabric.SendWR, _ *LaneEndpoint) { wr.Op = fabric.OpRead },
		"atomic": func(wr *fabric.SendWR, _ *LaneEndpoint) { wr.Op = fabric.OpFetchAdd },
		"another lane": func(wr *fabric.SendWR, other *LaneEndpoint) {
			wr.RemoteAddr, wr.RemoteKey = other.MR.Remote().Addr, other.MR.Remote().Key
		},
		"beyond the slots": func(wr *fabric.SendWR, _ *LaneEndpoint) {
			wr.RemoteAddr += uint64(rigGeometry.Slots * rigGeometry.SlotSize)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, out, in := remoteLaneOver(t, tcp.New(tcp.Config{}))
			other := b.endpointOf(t, newRing(t), 9)
			defer func() {
				if err := other.Release(); err != nil {
					t.Error(err)
				}
			}()
			p := out.End
			p.MR.Bytes()[0] = 0xff // what would be written
			own, far, third := slices.Clone(p.MR.Bytes()), slices.Clone(in.End.MR.Bytes()), slices.Clone(other.MR.Bytes())
			farNow := in.End.MR.Bytes()
			wr := fabric.SendWR{ID: p.next, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: p.MR, Len: slots.AtomicSize},
				RemoteAddr: p.remote.Addr, RemoteKey: p.remote.Key}
			change(&wr, other)
			p.next++
			if n, err := p.Endpoint.PostSend([]fabric.SendWR{wr}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			for deadline := time.Now().Add(time.Minute); (in.End != nil || out.End != nil) && time.Now().Before(deadline); {
				a.a.wait(time.Millisecond)
				b.a.wait(time.Millisecond)
				settle(a, b)
			}
			if in.End != nil || out.End != nil {
				t.Fatal("the connection lives on")
			}
			if !slices.Equal(own, p.MR.Bytes()) || !slices.Equal(far, farNow) || !slices.Equal(third, other.MR.Bytes()) {
				t.Error("memory has changed")
			}
		})
	}
}
