package fabrictest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
)

// Example sends a message into the memory of a peer and is told by an immediate
// that it is there. The fake provider stands for any other.
func Example() {
	provider := fabrictest.NewFake()
	a, b := newNode(provider), newNode(provider)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	passive := make(chan error, 1)
	go func() { passive <- b.ep.Connect(ctx, a.ep.Address(), fabric.Passive) }()
	check(a.ep.Connect(ctx, b.ep.Address(), fabric.Active))
	check(<-passive)
	check(a.ep.Activate())
	check(b.ep.Activate())

	_, err := b.ep.PostRecv([]fabric.RecvWR{{ID: 1}})
	check(err)
	n := copy(a.mem.Bytes(), "ping")
	to := b.mem.Remote()
	_, err = a.ep.PostSend([]fabric.SendWR{{
		ID: 2, Op: fabric.OpWriteImm, Flags: fabric.FlagSignaled, Imm: 42,
		Local:      fabric.Local{Region: a.mem, Len: uint32(n)},
		RemoteAddr: to.Addr, RemoteKey: to.Key,
	}})
	check(err)

	sent, came := a.wait(), b.wait()
	fmt.Println("sent:", sent.ID, sent.Status)
	fmt.Println("came:", came.Imm, string(b.mem.Bytes()[:came.Len]))
	// Output:
	// sent: 2 success
	// came: 42 ping
}

type node struct {
	cq  fabric.CQ
	mem fabric.MemoryRegion
	ep  fabric.Endpoint
}

func newNode(p fabric.Provider) *node {
	dev, err := p.Open(fabric.Options{})
	check(err)
	n := &node{}
	pd, err := dev.AllocPD()
	check(err)
	n.mem, err = pd.Register(make([]byte, 4096), fabric.AccessRemoteWrite)
	check(err)
	n.cq, err = dev.CreateCQ(16, nil)
	check(err)
	n.ep, err = pd.CreateEndpoint(fabric.EndpointAttr{CQ: n.cq, SendDepth: 16, RecvDepth: 16})
	check(err)
	return n
}

// wait polls until there is a completion.
func (n *node) wait() fabric.Completion {
	var c [1]fabric.Completion
	for {
		k, err := n.cq.Poll(c[:])
		check(err)
		if k == 1 {
			return c[0]
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
