package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// stranger connects to a node's ports without being a peer.
type stranger struct {
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// strangers is how many connections there are at a time.
const strangers = 4

// newStranger begins.
func newStranger(i *injection) *stranger {
	ctx, cancel := context.WithCancel(i.ctx)
	s := &stranger{cancel: cancel}
	n := i.nodes[i.rng.IntN(len(i.nodes))]
	var heard [][]byte
	for _, p := range i.proxies() {
		heard = append(heard, p.heard()...)
	}
	for k := range strangers {
		address := n.listen
		if k%2 == 1 && len(i.data) > 0 {
			address = n.data
		}
		rng := rand.New(rand.NewPCG(i.rng.Uint64(), uint64(k)))
		s.all.Go(func() {
			for ctx.Err() == nil {
				visit(ctx, rng, address, heard)
				time.Sleep(time.Millisecond)
			}
		})
	}
	return s
}

// stop ends it and returns when all connections are closed.
func (s *stranger) stop() {
	s.cancel()
	s.all.Wait()
}

// visitLimit bounds a visit that says nothing.
const visitLimit = 50 * time.Millisecond

// visit connects once and says something.
func visit(ctx context.Context, rng *rand.Rand, address string, heard [][]byte) {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(ctx, visitLimit)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	if rng.IntN(4) == 0 {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	_ = c.SetDeadline(time.Now().Add(visitLimit))
	_, _ = c.Write(speech(rng, heard))
	switch rng.IntN(3) {
	case 0: // gone at once
	case 1: // half a handshake, and silence
		<-ctx.Done()
	default:
		b := make([]byte, 4096)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}
}

// speech is what a stranger says: garbage, frames that are none, or what peers have said,
// as it was, damaged or cut off.
func speech(rng *rand.Rand, heard [][]byte) []byte {
	b := make([]byte, rng.IntN(3000))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	frame := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	switch rng.IntN(6) {
	case 0:
		return b
	case 1:
		return append(binary.BigEndian.AppendUint32(nil, rng.Uint32()), b...)
	case 2:
		return frame(fmt.Sprintf(`{"type":"hello","hello":{"magic":"rdmad-peer","protocol":2,"abi":196608,"node":"a","incarnation":"%x","fabric":"tcp","now":1}}`, rng.Uint64()))
	case 3:
		return append([]byte("RDMADTCP\x01\x00\x00\x00\x00\x00\x00\x00"), b...)
	}
	if len(heard) == 0 {
		return b
	}
	said := append([]byte(nil), heard[rng.IntN(len(heard))]...)
	if len(said) == 0 {
		return b
	}
	switch rng.IntN(3) {
	case 0:
		return said
	case 1:
		for range 1 + rng.IntN(8) {
			said[rng.IntN(len(said))] ^= 1 << rng.IntN(8)
		}
		return said
	}
	return said[:rng.IntN(len(said))]
}
