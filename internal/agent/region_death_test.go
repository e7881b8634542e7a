package agent

import (
	"bytes"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// dieInAnOp makes a call whose handler writes its region to the caller's, and dies in the middle of it.
func (x *regionRig) dieInAnOp() (*rigCall, slots.Run) {
	c, u := x.begin(whole(x.far, slots.RightWrite))
	copy(x.own.Mem, bytes.Repeat([]byte{7}, rigRegion))
	accompany(x.b.a) // small steps
	for range 3 {
		x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
	}
	for range 2 {
		x.b.a.cycle() // in the middle of the first one
	}
	x.b.bury(x.service)
	x.own.Free()
	return c, u
}

// A worker that dies in the middle of an operation: the end of its request waits for
// what is under way, and nothing is written afterwards.
func TestDeathInAnOp(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		c, _ := x.dieInAnOp()
		settle(x.a, x.b)
		if status, ok := c.outcome(t); !ok || status != slots.StatusMaybeExecuted {
			t.Errorf("the call: %v, %v", status, ok)
		}
		after := bytes.Clone(x.far.Mem)
		settle(x.a, x.b)
		if !bytes.Equal(x.far.Mem, after) {
			t.Error("bytes are written after the outcome")
		}
		if n := bytes.Count(after, []byte{7}); n == 0 || n == rigRegion {
			t.Errorf("%d bytes are written: not the middle", n)
		}
		x.service = x.b.addService()
	})
}

// The domain is retired while what is under way of a handler that has died is not over: its request
// may have been executed.
func TestRetiredAfterADeathInAnOp(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		c, u := x.dieInAnOp()
		if g := x.in.records[u.Index].grants; x.pd != nil && (g == nil || !g.dying) { // those of regions of this node are done at once
			t.Fatal("nothing is under way any more")
		}
		x.in.giveBack("the memory is given up")
		settle(x.a, x.b)
		if status, ok := c.outcome(t); !ok || status != slots.StatusMaybeExecuted {
			t.Errorf("the call: %v, %v", status, ok)
		}
		x.service = x.b.addService()
	})
}
