package tcp

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// pair is two connected endpoints with a queue and a poller each.
type pair struct {
	ep  [2]*Endpoint
	cq  [2]fabric.CQ
	pol [2]*poller.Poller
	mem [2]fabric.MemoryRegion
}

func newPair(t testing.TB) *pair { return newPairWith(t, Config{}) }

func newPairWith(t testing.TB, cfg Config) *pair {
	t.Helper()
	p := &pair{}
	for i := range p.ep {
		d, err := New(cfg).Open(fabric.Options{})
		must(t, err)
		t.Cleanup(func() { must(t, d.Close()) })
		p.pol[i], err = poller.New()
		must(t, err)
		t.Cleanup(func() { must(t, p.pol[i].Close()) })
		p.cq[i], err = d.CreateCQ(64, p.pol[i])
		must(t, err)
		t.Cleanup(func() { must(t, p.cq[i].Close()) })
		pd, err := d.AllocPD()
		must(t, err)
		p.mem[i], err = pd.Register(shm.AlignedBytes(1<<20), fabric.AccessRemoteWrite|fabric.AccessRemoteRead)
		must(t, err)
		e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: p.cq[i], SendDepth: 256, RecvDepth: 256})
		must(t, err)
		t.Cleanup(func() { must(t, e.Close()) })
		p.ep[i] = e.(*Endpoint)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	passive := make(chan error, 1)
	go func() { passive <- p.ep[0].Connect(ctx, p.ep[1].Address(), fabric.Passive) }()
	must(t, p.ep[1].Connect(ctx, p.ep[0].Address(), fabric.Active))
	must(t, <-passive)
	must(t, p.ep[0].Activate())
	must(t, p.ep[1].Activate())
	return p
}

// batch is n writes of size bytes, the last one signaled and with an immediate.
func (p *pair) batch(n, size int) []fabric.SendWR { return p.batchFrom(0, n, size) }

// batchFrom is batch of either side.
func (p *pair) batchFrom(side, n, size int) []fabric.SendWR {
	to := p.mem[1-side].Remote()
	wrs := make([]fabric.SendWR, n)
	for i := range wrs {
		wrs[i] = fabric.SendWR{
			ID: uint64(i), Op: fabric.OpWrite, Local: fabric.Local{Region: p.mem[side], Offset: uint64(i * size), Len: uint32(size)},
			RemoteAddr: to.Addr + uint64(i*size), RemoteKey: to.Key,
		}
	}
	wrs[n-1].Op, wrs[n-1].Flags = fabric.OpWriteImm, fabric.FlagSignaled
	return wrs
}

// round sends a batch and waits for its two completions like an agent does.
func (p *pair) round(t testing.TB, wrs []fabric.SendWR, recv []fabric.RecvWR, c []fabric.Completion) {
	start := time.Now()
	if _, err := p.ep[1].PostRecv(recv); err != nil {
		t.Fatal(err)
	}
	if n, err := p.ep[0].PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatal(n, err)
	}
	for side := range 2 {
		for {
			n, err := p.cq[side].Poll(c)
			if err != nil || n > 0 && c[0].Status != fabric.StatusSuccess {
				t.Fatal(c[0], err)
			}
			if n > 0 {
				break
			}
			if armed, _ := p.cq[side].Arm(); armed {
				// A wait may end for no reason, by a signal of the Go runtime.
				if k, err := p.pol[side].Wait(patience); err != nil || k == 0 && time.Since(start) > patience {
					t.Fatal("no event", err)
				}
			}
		}
	}
}

// A batch costs one write and one read, however many messages it has. An idle
// queue makes no system calls.
func TestSystemCallsPerBatch(t *testing.T) {
	t.Run("plain", func(t *testing.T) { systemCallsPerBatch(t, Config{}) })
	t.Run("TLS", func(t *testing.T) { systemCallsPerBatch(t, Config{Security: guardOf(t, "test")}) })
}

func systemCallsPerBatch(t *testing.T, cfg Config) {
	for _, n := range []int{1, 16, 100} {
		p := newPairWith(t, cfg)
		wrs, recv, c := p.batch(n, 128), make([]fabric.RecvWR, 1), make([]fabric.Completion, 8)
		const rounds = 50
		// With TLS each end looks first for what came with the handshake.
		p.round(t, wrs, recv, c)
		outBefore, inBefore := p.ep[0].Stats(), p.ep[1].Stats()
		for range rounds {
			p.round(t, wrs, recv, c)
		}
		out, in := p.ep[0].Stats(), p.ep[1].Stats()
		if writes, reads := out.Writes-outBefore.Writes, out.Reads-outBefore.Reads; writes != rounds || reads != 0 || out.FramesOut != uint64(n*(rounds+1)) {
			t.Errorf("batches of %d: the sender did %d writes and %d reads for %d batches", n, writes, reads, rounds)
		}
		// TCP may deliver a batch in two segments; it hardly does on loopback.
		reads := in.Reads - inBefore.Reads
		if reads > rounds+rounds/5 || in.Writes != 0 || in.FramesIn != uint64(n*(rounds+1)) {
			t.Errorf("batches of %d: the receiver did %d reads and %d writes for %d batches", n, reads, in.Writes, rounds)
		}
		t.Logf("batches of %d: %d writes, %d reads for %d batches", n, out.Writes-outBefore.Writes, reads, rounds)
		for range 10 {
			if k, err := p.cq[1].Poll(c); k != 0 || err != nil {
				t.Fatal(k, err)
			}
		}
		if again := p.ep[1].Stats(); again != in {
			t.Errorf("an idle queue did something: %+v, before %+v", again, in)
		}
	}
}

// What has arrived together is handed over by one Poll, whatever a single read takes; but a Poll
// reads only so often, so that what never ends does not keep the agent.
func TestPollTakesWhatHasArrived(t *testing.T) {
	const buffer = minReceiveBuffer
	for _, size := range []int{100, buffer - headerSize, buffer, 3 * buffer} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := newPairWith(t, Config{ReceiveBuffer: buffer})
			// Less than the kernel's first window, 64 KiB, and more than one Poll takes in.
			frames := min(48<<10/(size+headerSize), 256)
			wrs := p.batch(frames, size)
			for i := range wrs {
				wrs[i].Op, wrs[i].Flags = fabric.OpWriteImm, fabric.FlagSignaled
			}
			c := make([]fabric.Completion, 2*frames)
			if n, err := p.ep[1].PostRecv(make([]fabric.RecvWR, frames)); n != frames || err != nil {
				t.Fatal(n, err)
			}
			if n, err := p.ep[0].PostSend(wrs); n != frames || err != nil {
				t.Fatal(n, err)
			}
			all := frames * (size + headerSize)
			arrived(t, p.ep[1].fd, all)
			if n, err := p.pol[1].Wait(patience); n == 0 || err != nil {
				t.Fatal(n, err)
			}
			n, err := p.cq[1].Poll(c)
			must(t, err)
			s := p.ep[1].Stats()
			if s.Reads > turnsOfPoll {
				t.Errorf("%d reads by one Poll", s.Reads)
			}
			// Each read takes in a buffer but for what it has left there of a header.
			if want := min(all, 3*buffer); n < want/(size+headerSize) || int(s.BytesIn) < want {
				t.Errorf("one Poll: %d frames, %d bytes, %d reads; %d frames of %d bytes had arrived", n, s.BytesIn, s.Reads, frames, size)
			}
		})
	}
}

// Once a Poll has taken in enough it leaves the rest, whatever may still be read.
func TestPollLeavesWhatIsLarge(t *testing.T) {
	const buffer, size, frames = minReceiveBuffer, 3 * minReceiveBuffer, 3
	p := newPairWith(t, Config{ReceiveBuffer: buffer})
	p.cq[1].(*cq).enough = 2 * buffer
	if n, err := p.ep[1].PostRecv(make([]fabric.RecvWR, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.ep[0].PostSend(p.batch(frames, size)); n != frames || err != nil {
		t.Fatal(n, err)
	}
	arrived(t, p.ep[1].fd, frames*(size+headerSize))
	if n, err := p.pol[1].Wait(patience); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	c := make([]fabric.Completion, 8)
	// The first read takes in a buffer, the second the rest of the payload and a buffer.
	for _, reads := range []uint64{2, 3} {
		if _, err := p.cq[1].Poll(c); err != nil {
			t.Fatal(err)
		}
		if s := p.ep[1].Stats(); s.Reads != reads {
			t.Fatalf("%d reads of %d bytes, want %d", s.Reads, s.BytesIn, reads)
		}
	}
}

// arrived waits until a socket has so many bytes to read.
func arrived(t *testing.T, fd, bytes int) {
	t.Helper()
	for start := time.Now(); ; runtime.Gosched() {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // SIOCINQ, as in tcp(7)
		must(t, err)
		if n >= bytes {
			return
		}
		if time.Since(start) > patience {
			t.Fatalf("%d of %d bytes have arrived", n, bytes)
		}
	}
}

// Neither direction allocates, whatever the size.
func TestNoAllocations(t *testing.T) {
	for _, shape := range [][2]int{{1, 64}, {64, 128}, {8, 8192}, {1, 1 << 20}} {
		p := newPair(t)
		wrs, recv, c := p.batch(shape[0], shape[1]), make([]fabric.RecvWR, 1), make([]fabric.Completion, 8)
		p.round(t, wrs, recv, c)
		if n := testing.AllocsPerRun(30, func() { p.round(t, wrs, recv, c) }); n != 0 {
			t.Errorf("%d messages of %d bytes: %v allocations", shape[0], shape[1], n)
		}
	}
	p := newPair(t)
	wrs, c := p.batch(1, 4096), make([]fabric.Completion, 8)
	wrs[0].Op = fabric.OpRead
	read := func() {
		if n, err := p.ep[0].PostSend(wrs); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		for done := 0; done == 0; {
			for side := range 2 {
				if _, err := p.pol[side].Wait(0); err != nil {
					t.Fatal(err)
				}
				n, err := p.cq[side].Poll(c)
				if err != nil {
					t.Fatal(err)
				}
				done += n
			}
		}
	}
	read()
	if n := testing.AllocsPerRun(30, read); n != 0 {
		t.Errorf("a read allocates %v times on both sides", n)
	}
}

// A flood on one endpoint does not keep others waiting: the quiet one has its
// completion within as many turns as there are endpoints.
func TestFairTurns(t *testing.T) {
	w := newWire(t, 60)
	defer w.close()
	quiet, err := w.ep.pd.CreateEndpoint(fabric.EndpointAttr{CQ: w.cq, Tag: 9, RecvDepth: 1})
	must(t, err)
	defer func() { must(t, quiet.Close()) }()
	if _, err := quiet.PostRecv([]fabric.RecvWR{{ID: 33}}); err != nil {
		t.Fatal(err)
	}
	var flood []byte
	for range 60 {
		flood = append(flood, w.frame(wireWriteImm, 0, "")...)
	}
	if _, err := shm.WriteFD(w.fd, flood); err != nil {
		t.Fatal(err)
	}
	// A closed endpoint has a completion to report and stands in line.
	must(t, quiet.Close())
	var one [1]fabric.Completion
	for turn := range 2 {
		n, err := w.cq.Poll(one[:])
		must(t, err)
		if n == 1 && one[0].Tag == 9 {
			return
		}
		t.Logf("turn %d: %+v", turn, one[0])
	}
	t.Error("the quiet endpoint had no turn")
}

// Completions that a short Poll has no room for are not lost, whatever the depth
// that the queue was made with.
func TestQueueCannotOverflow(t *testing.T) {
	w := newWire(t, 60)
	defer w.close()
	var b []byte
	for range 60 {
		b = append(b, w.frame(wireWriteImm, 0, "")...)
	}
	got := w.send(b)
	for i, c := range got {
		if c.ID != uint64(i) || c.Op != fabric.OpRecvImm {
			t.Errorf("completion %d: %+v", i, c)
		}
	}
	if len(got) != 60 {
		t.Errorf("%d completions", len(got))
	}
}
