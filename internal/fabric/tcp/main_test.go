package tcp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

// patience bounds every wait: much longer than anything takes on a busy machine.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

// watchFDs fails t if it ends with more descriptors than it started with. Call it
// before anything that opens one.
func watchFDs(t testing.TB) {
	t.Helper()
	// The Go poller's own descriptors come with the first socket and stay.
	d, err := New(Config{}).Open(fabric.Options{})
	if err != nil {
		t.Fatal(err)
	}
	must(t, d.Close())
	before := leaktest.Descriptors(t)
	t.Cleanup(func() {
		if after := leaktest.Descriptors(t); after > before {
			t.Errorf("%d descriptors at the end, %d at the start", after, before)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wire is an endpoint whose peer is the test, on the other end of a socket pair.
type wire struct {
	t   testing.TB
	dev *Device
	cq  *cq
	ep  *Endpoint
	mem *region
	fd  int // the test's end
	seq uint32
}

const wireMemory = 16 << 10

func newWire(t testing.TB, recvs int) *wire {
	t.Helper()
	w := &wire{t: t}
	w.dev = &Device{cfg: Config{ReceiveBuffer: minReceiveBuffer}, life: t.Context(), endpoints: make(map[*Endpoint]struct{})}
	q, err := w.dev.CreateCQ(1, nil)
	must(t, err)
	w.cq = q.(*cq)
	pd, err := w.dev.AllocPD()
	must(t, err)
	m, err := pd.Register(shm.AlignedBytes(wireMemory), fabric.AccessRemoteWrite|fabric.AccessRemoteRead|fabric.AccessRemoteAtomic)
	must(t, err)
	w.mem = m.(*region)
	// A fuzzer's corpus must mean the same in every run.
	w.mem.base, w.mem.key = 1<<20, 77
	clear(w.mem.pd.regions)
	w.mem.pd.add(w.mem)
	e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: w.cq, Tag: 5, SendDepth: 64, RecvDepth: 64})
	must(t, err)
	w.ep = e.(*Endpoint)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	w.fd = fds[1]
	w.ep.phase = phaseConnecting
	must(t, w.ep.connected(fds[0], nil))
	for i := range recvs {
		_, err := w.ep.PostRecv([]fabric.RecvWR{{ID: uint64(i), Local: fabric.Local{Region: w.mem, Offset: 8192, Len: 512}}})
		must(t, err)
	}
	must(t, w.ep.Activate())
	return w
}

func (w *wire) close() {
	must(w.t, w.ep.Close())
	w.poll()
	must(w.t, w.cq.Close())
	must(w.t, unix.Close(w.fd))
}

// poll polls until nothing moves and returns the completions.
func (w *wire) poll() []fabric.Completion {
	w.t.Helper()
	var got []fabric.Completion
	var c [7]fabric.Completion
	for quiet := 0; quiet < 3; {
		in, out := w.ep.stats.BytesIn, w.ep.stats.BytesOut
		n, err := w.cq.Poll(c[:])
		must(w.t, err)
		got = append(got, c[:n]...)
		if quiet++; n > 0 || in != w.ep.stats.BytesIn || out != w.ep.stats.BytesOut {
			quiet = 0
		}
	}
	return got
}

// send writes b to the endpoint, polling as long as the socket is full.
func (w *wire) send(b []byte) []fabric.Completion {
	w.t.Helper()
	var got []fabric.Completion
	for len(b) > 0 {
		n, err := shm.WriteFD(w.fd, b)
		b = b[max(n, 0):]
		switch err {
		case nil:
		case unix.EAGAIN:
			before := w.ep.stats.BytesIn
			got = append(got, w.poll()...)
			if w.ep.stats.BytesIn == before {
				return got
			}
		default:
			return append(got, w.poll()...)
		}
	}
	return append(got, w.poll()...)
}

// receive returns everything the endpoint has sent.
func (w *wire) receive() []byte {
	var all []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := shm.ReadFD(w.fd, buf)
		if n == 0 || err != nil {
			return all
		}
		all = append(all, buf[:n]...)
	}
}

// frame is an encoded request with the next sequence number.
func (w *wire) frame(op wireOp, addr uint64, payload string) []byte {
	f := frame{op: op, seq: w.seq, length: uint32(len(payload)), addr: addr, key: 77}
	if op == wireSend {
		f.key = 0
	}
	w.seq++
	b := make([]byte, headerSize, headerSize+len(payload))
	putHeader(b, &f)
	return append(b, payload...)
}
