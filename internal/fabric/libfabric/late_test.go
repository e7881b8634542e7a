//go:build libfabric && cgo && linux

package libfabric

import (
	"bytes"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// What has begun when a region is closed may go on, which Caps says, until the endpoint is closed: nothing comes after
// that, and nothing is read.
func TestLateAccess(t *testing.T) {
	const size = 64 << 20
	for what, kind := range map[string]fabric.Op{"write": fabric.OpWrite, "read": fabric.OpRead} {
		t.Run(what, func(t *testing.T) {
			eachProvider(t, func(t *testing.T, cfg Config) {
				p := newPairing(t, cfg, 16, size)
				if !p.dev[0].Caps().LateAccess {
					t.Error("the device does not say that regions are used late")
				}
				// The passive end is 0, whose region is closed.
				target, local := p.mr[0], p.mr[1]
				from, into := local.Bytes(), target.Bytes()
				if kind == fabric.OpRead {
					from, into = into, from
				}
				copy(from, bytes.Repeat([]byte{1}, size))
				key := target.Remote()
				_, err := p.ep[1].PostSend([]fabric.SendWR{{
					ID: 5, Op: kind, Flags: fabric.FlagSignaled, Local: fabric.Local{Region: local, Len: p.longest(size)}, RemoteAddr: key.Addr, RemoteKey: key.Key,
				}})
				p.must(err)
				poll := func(limit time.Duration, until func() bool) bool {
					var c [64]fabric.Completion
					for end := time.Now().Add(limit); !until(); {
						for _, q := range p.cq {
							_, err := q.Poll(c[:])
							p.must(err)
						}
						if time.Now().After(end) {
							return false
						}
					}
					return true
				}
				if !poll(time.Minute, func() bool { return into[0] == 1 }) {
					t.Fatal("nothing arrives")
				}
				p.must(target.Close())
				p.must(p.ep[0].Close())
				was := bytes.Clone(target.Bytes())
				if kind == fabric.OpRead {
					copy(target.Bytes(), bytes.Repeat([]byte{7}, size)) // somebody else's from now on
				}
				poll(300*time.Millisecond, func() bool { return false })
				switch {
				case kind == fabric.OpWrite && !bytes.Equal(target.Bytes(), was):
					t.Error("bytes are written after the endpoint was closed")
				case kind == fabric.OpRead && bytes.IndexByte(into, 7) >= 0:
					t.Error("bytes are read after the endpoint was closed")
				}
				p.close()
			})
		})
	}
}
