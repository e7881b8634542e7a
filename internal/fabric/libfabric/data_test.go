//go:build libfabric && cgo && linux

package libfabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// pairing is two connected ends, polled by the test.
type pairing struct {
	testing.TB
	dev [2]*Device
	pd  [2]fabric.ProtectionDomain
	cq  [2]fabric.CQ
	ep  [2]*Endpoint
	mr  [2]fabric.MemoryRegion
}

// newPairing connects two ends of the given depth, each with a device and memory of its own.
func newPairing(t testing.TB, cfg Config, depth, memory int) *pairing {
	t.Helper()
	return newPairingOf(t, newProvider(t, cfg), nil, depth, memory)
}

// longest is a size, or what the provider moves at once at most: that of verbs is the device's, 8 MiB for some.
func (p *pairing) longest(size int) uint32 {
	return uint32(min(uint64(size), p.dev[0].info.Limits.MaxMessage))
}

// newPairingOf is newPairing with queues that wake a poller, if it is not nil.
func newPairingOf(t testing.TB, of fabric.Provider, w *poller.Poller, depth, memory int) *pairing {
	t.Helper()
	p := &pairing{TB: t}
	for i := range p.ep {
		d, err := of.Open(fabric.Options{Listen: "127.0.0.1:0"})
		p.must(err)
		p.dev[i] = d.(*Device)
		p.pd[i], err = d.AllocPD()
		p.must(err)
		p.mr[i], err = p.pd[i].Register(shm.AlignedBytes(memory), fabric.AccessRemoteWrite|fabric.AccessRemoteRead)
		p.must(err)
		p.cq[i], err = d.CreateCQ(2*depth, w)
		p.must(err)
	}
	p.ep = p.connected(depth, 0)
	return p
}

// connected makes two more ends of the devices of p, connects and activates them. The end at index i has the tag tag+i.
func (p *pairing) connected(depth int, tag uint64) (ep [2]*Endpoint) {
	p.Helper()
	for i := range ep {
		e, err := p.pd[i].CreateEndpoint(fabric.EndpointAttr{CQ: p.cq[i], Tag: tag + uint64(i), SendDepth: depth, RecvDepth: depth})
		p.must(err)
		ep[i] = e.(*Endpoint)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	passive := make(chan error, 1)
	fabric.Expect(ep[0], ep[1].Address())
	go func() { passive <- ep[0].Connect(ctx, ep[1].Address(), fabric.Passive) }()
	p.must(ep[1].Connect(ctx, ep[0].Address(), fabric.Active))
	p.must(<-passive)
	for i := range ep {
		p.must(ep[i].Activate())
	}
	return ep
}

func (p *pairing) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// collect polls both ends until done says so, and hands it every completion.
func (p *pairing) collect(done func(end int, c fabric.Completion) bool) {
	p.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	var c [64]fabric.Completion
	for time.Now().Before(deadline) {
		for i, q := range p.cq {
			n, err := q.Poll(c[:])
			p.must(err)
			for _, d := range c[:n] {
				if done(i, d) {
					return
				}
			}
		}
	}
	p.Fatal("no end in sight")
}

func (p *pairing) close() {
	p.Helper()
	p.must(errors.Join(p.ep[0].Close(), p.ep[1].Close()))
	for i := range p.ep {
		p.must(errors.Join(p.mr[i].Close(), p.pd[i].Close(), p.cq[i].Close(), p.dev[i].Close()))
	}
}

// More than the library has room for waits, and its data is that of the time of the call.
func TestNoRoom(t *testing.T) {
	const depth, size = 4096, 8
	eachProvider(t, func(t *testing.T, cfg Config) {
		p := newPairing(t, cfg, depth, depth*size)
		defer p.close()
		mem, key := p.mr[1].Bytes(), p.mr[0].Remote()
		want := make([]byte, depth*size)
		var wrs []fabric.SendWR
		for i := range depth {
			binary.LittleEndian.PutUint64(mem[i*size:], uint64(i+1))
			wrs = append(wrs, fabric.SendWR{
				ID: uint64(i), Op: fabric.OpWrite, Flags: fabric.FlagInline | fabric.FlagSignaled,
				Local:      fabric.Local{Region: p.mr[1], Offset: uint64(i * size), Len: size},
				RemoteAddr: key.Addr + uint64(i*size), RemoteKey: key.Key,
			})
		}
		copy(want, mem)
		n, err := p.ep[1].PostSend(wrs)
		if n != depth || err != nil {
			t.Fatalf("PostSend took %d, %v", n, err)
		}
		clear(mem)
		next := uint64(0)
		p.collect(func(_ int, c fabric.Completion) bool {
			if c.ID != next || c.Status != fabric.StatusSuccess {
				t.Fatalf("completion %d is %+v", next, c)
			}
			next++
			return next == depth
		})
		if !bytes.Equal(p.mr[0].Bytes(), want) {
			t.Error("the data is another's")
		}
		s := p.ep[1].Stats()
		t.Logf("%+v", s)
		if s.Sends != depth || s.Again == 0 {
			t.Errorf("there was always room: %+v", s)
		}
	})
}

// An endpoint that is closed while the library has no room for its work is not used any more.
func TestCloseWithoutRoom(t *testing.T) {
	const depth = 4096
	eachProvider(t, func(t *testing.T, cfg Config) {
		p := newPairing(t, cfg, depth, 4096)
		defer p.close()
		key := p.mr[0].Remote()
		wrs := make([]fabric.SendWR, depth)
		for i := range wrs {
			wrs[i] = fabric.SendWR{ID: uint64(i), Op: fabric.OpWrite, Flags: fabric.FlagSignaled,
				Local: fabric.Local{Region: p.mr[1], Len: 8}, RemoteAddr: key.Addr, RemoteKey: key.Key}
		}
		n, err := p.ep[1].PostSend(wrs)
		if n != depth || err != nil {
			t.Fatalf("PostSend took %d, %v", n, err)
		}
		p.must(p.ep[1].Close())
		before := p.ep[1].Stats()
		if before.Again == 0 || before.Sends == depth {
			t.Fatalf("there was room for everything: %+v", before)
		}
		left := depth
		p.collect(func(end int, c fabric.Completion) bool {
			left -= end
			return left == 0
		})
		if after := p.ep[1].Stats(); after != before {
			t.Errorf("work went to the closed endpoint: %+v before, %+v after", before, after)
		}
	})
}

// A group is one call into C, and so is a look for completions, however many there are.
func TestCostOfAGroup(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		if cfg.Provider == shmProvider {
			t.Skip("it takes one operation at a time that says when it has landed")
		}
		const group = 32
		p := newPairing(t, cfg, 64, 1<<16)
		defer p.close()
		_, err := p.ep[0].PostRecv(make([]fabric.RecvWR, 64))
		p.must(err)
		key := p.mr[0].Remote()
		var wrs []fabric.SendWR
		for i := range group {
			wrs = append(wrs, fabric.SendWR{Op: fabric.OpWriteImm, Imm: uint32(i), Local: fabric.Local{Region: p.mr[1], Len: 512},
				RemoteAddr: key.Addr, RemoteKey: key.Key})
		}
		wrs[group-1].Flags = fabric.FlagSignaled
		_, err = p.ep[1].PostSend(wrs)
		p.must(err)
		if s := p.ep[1].Stats(); s.SendCalls != 1 || s.Sends != group {
			t.Errorf("%+v", s)
		}
		arrived := 0
		p.collect(func(end int, _ fabric.Completion) bool {
			arrived += 1 - end
			return arrived == group
		})
	})
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// What was opened is closed: descriptors, threads, files of shared memory, and the library's
// objects.
func TestNothingIsLeft(t *testing.T) {
	eachProvider(t, func(t *testing.T, cfg Config) {
		round := func() { newPairing(t, cfg, 16, 4096).close() }
		round() // what the library keeps for good
		places := []string{"/proc/self/fd", "/proc/self/task", "/dev/shm"}
		var before []int
		for _, dir := range places {
			before = append(before, entries(t, dir))
		}
		objects := live.Load()
		for range 10 {
			round()
		}
		runtime.GC()
		for i, dir := range places {
			// The runtime and other programs may add a few.
			if n := entries(t, dir); n > before[i]+5 {
				t.Errorf("%s had %d entries, and has %d", dir, before[i], n)
			}
		}
		if n := live.Load() - objects; n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

// An endpoint takes no more of the process's own memory than docs/fabrics.md says.
func TestMemoryOfEndpoints(t *testing.T) {
	const limit = 12 << 20
	eachProvider(t, func(t *testing.T, cfg Config) {
		const pairs = 4
		before := anonymous(t)
		for range pairs {
			defer newPairing(t, cfg, 16, 4096).close()
		}
		// Each device has one more, for control messages.
		per := (anonymous(t) - before) / (4 * pairs)
		t.Logf("%d KiB per endpoint", per>>10)
		if per > limit {
			t.Errorf("an endpoint takes %d bytes, more than %d", per, limit)
		}
	})
}

// anonymous returns how many bytes of memory this process has for itself.
func anonymous(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	var kib int
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
