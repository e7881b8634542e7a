package fabrictest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/shm"
)

// rig is a connected pair of endpoints, polled by the test.
type rig struct {
	t   *testing.T
	ep  [2]fabric.Endpoint
	cq  [2]fabric.CQ
	mem [2]fabric.MemoryRegion
	got [2][]fabric.Completion
}

func newRig(t *testing.T, p fabric.Provider) *rig {
	t.Helper()
	r := &rig{t: t}
	for i := range r.ep {
		d, err := p.Open(fabric.Options{})
		r.must(err)
		pd, err := d.AllocPD()
		r.must(err)
		r.mem[i], err = pd.Register(shm.AlignedBytes(4096), fabric.AccessRemoteWrite)
		r.must(err)
		r.cq[i], err = d.CreateCQ(256, nil)
		r.must(err)
		r.ep[i], err = pd.CreateEndpoint(fabric.EndpointAttr{CQ: r.cq[i], Tag: uint64(i), SendDepth: 64, RecvDepth: 64})
		r.must(err)
		t.Cleanup(func() { r.must(errors.Join(r.ep[i].Close(), r.cq[i].Close(), r.mem[i].Close(), pd.Close(), d.Close())) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	passive := make(chan error, 1)
	go func() { passive <- r.ep[0].Connect(ctx, r.ep[1].Address(), fabric.Passive) }()
	r.must(r.ep[1].Connect(ctx, r.ep[0].Address(), fabric.Active))
	r.must(<-passive)
	r.must(r.ep[0].Activate())
	r.must(r.ep[1].Activate())
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// poll polls both sides a number of times that is enough for everything.
func (r *rig) poll() {
	r.t.Helper()
	var c [16]fabric.Completion
	for range 200 {
		for i, q := range r.cq {
			n, err := q.Poll(c[:])
			r.must(err)
			r.got[i] = append(r.got[i], c[:n]...)
		}
	}
}

// write is a signaled write-imm of 64 bytes to the same place of the peer.
func (r *rig) write(id int) fabric.SendWR {
	to := r.mem[1].Remote()
	return fabric.SendWR{
		ID: uint64(id), Op: fabric.OpWriteImm, Flags: fabric.FlagSignaled, Imm: uint32(id),
		Local:      fabric.Local{Region: r.mem[0], Len: 64},
		RemoteAddr: to.Addr, RemoteKey: to.Key,
	}
}

// play posts 20 writes one by one and returns what came of it, in words.
func play(t *testing.T, seed uint64, plan fabrictest.Plan) ([]string, *rig) {
	t.Helper()
	r := newRig(t, fabrictest.Faulty(fabrictest.NewFake(), seed, plan))
	for i := range r.mem[0].Bytes() {
		r.mem[0].Bytes()[i] = byte(i + 1)
	}
	_, err := r.ep[1].PostRecv(make([]fabric.RecvWR, 40))
	r.must(err)
	var log []string
	var c [4]fabric.Completion
	for i := range 20 {
		n, err := r.ep[0].PostSend([]fabric.SendWR{r.write(i)})
		log = append(log, fmt.Sprint("post ", i, n, err))
		n, perr := r.cq[0].Poll(c[:])
		r.must(perr)
		r.got[0] = append(r.got[0], c[:n]...)
		log = append(log, fmt.Sprint("poll ", c[:n]))
	}
	r.poll()
	return append(log, fmt.Sprint(r.got)), r
}

func TestFaultyIsDeterministic(t *testing.T) {
	plan := fabrictest.Plan{Delay: 0.4, QueueFull: 0.3, DisconnectAfter: 10, DropCompletions: true}
	first, _ := play(t, 3, plan)
	again, _ := play(t, 3, plan)
	if !reflect.DeepEqual(first, again) {
		t.Errorf("the same seed gave\n%v\nand\n%v", first, again)
	}
	other, _ := play(t, 4, plan)
	if reflect.DeepEqual(first, other) {
		t.Error("another seed changed nothing")
	}
}

// count returns how many completions of side i have the op and status.
func (r *rig) count(i int, op fabric.Op, s fabric.Status) int {
	n := 0
	for _, c := range r.got[i] {
		if c.Op == op && c.Status == s {
			n++
		}
	}
	return n
}

func TestFaultyDisconnect(t *testing.T) {
	_, r := play(t, 1, fabrictest.Plan{DisconnectAfter: 7})
	if n := r.count(0, fabric.OpWriteImm, fabric.StatusSuccess); n != 6 {
		t.Errorf("%d writes succeeded, want 6", n)
	}
	if n := r.count(0, fabric.OpWriteImm, fabric.StatusFlushed); n != 1 {
		t.Errorf("%d writes were flushed, want the last", n)
	}
	if n := r.count(1, fabric.OpRecvImm, fabric.StatusSuccess); n != 6 {
		t.Errorf("%d immediates came, want 6", n)
	}
	for i := range r.got {
		if n := r.count(i, fabric.OpDisconnect, fabric.StatusFlushed); n != 1 {
			t.Errorf("side %d: %d disconnects", i, n)
		}
	}
	if last := r.got[0][len(r.got[0])-1]; last.Op != fabric.OpDisconnect {
		t.Errorf("the last completion is %+v", last)
	}
	if _, err := r.ep[0].PostSend([]fabric.SendWR{r.write(1)}); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("PostSend after the end: %v", err)
	}
}

func TestFaultyHalfWrite(t *testing.T) {
	_, r := play(t, 1, fabrictest.Plan{DisconnectAfter: 1, HalfWrite: true})
	for i, v := range r.mem[1].Bytes() {
		want := byte(0)
		if i < 32 {
			want = byte(i + 1)
		}
		if v != want {
			t.Fatalf("byte %d is %d, want %d", i, v, want)
		}
	}
	if n := r.count(1, fabric.OpRecvImm, fabric.StatusSuccess); n != 0 {
		t.Errorf("half a write brought %d immediates", n)
	}
	if len(r.got[0]) != 2 {
		t.Errorf("completions: %+v", r.got[0])
	}
}

// Work that was done is reported as flushed, once.
func TestFaultyDropsCompletions(t *testing.T) {
	r := newRig(t, fabrictest.Faulty(fabrictest.NewFake(), 1, fabrictest.Plan{DisconnectAfter: 5, DropCompletions: true}))
	_, err := r.ep[1].PostRecv(make([]fabric.RecvWR, 10))
	r.must(err)
	var wrs []fabric.SendWR
	for i := range 5 {
		wrs = append(wrs, r.write(i))
	}
	n, err := r.ep[0].PostSend(wrs)
	r.must(err)
	r.poll()
	if n != 5 || r.count(0, fabric.OpWriteImm, fabric.StatusFlushed) != 5 {
		t.Errorf("took %d: %+v", n, r.got[0])
	}
	if n := r.count(1, fabric.OpRecvImm, fabric.StatusSuccess); n != 4 {
		t.Errorf("%d immediates came, want 4", n)
	}
}

func TestFaultyQueueFull(t *testing.T) {
	r := newRig(t, fabrictest.Faulty(fabrictest.NewFake(), 1, fabrictest.Plan{QueueFull: 0.7}))
	_, err := r.ep[1].PostRecv(make([]fabric.RecvWR, 64))
	r.must(err)
	var wrs []fabric.SendWR
	for i := range 50 {
		wrs = append(wrs, r.write(i))
	}
	refused := 0
	for posted := 0; posted < len(wrs); {
		n, err := r.ep[0].PostSend(wrs[posted:])
		posted += n
		if errors.Is(err, fabric.ErrQueueFull) {
			refused++
			continue
		}
		r.must(err)
	}
	r.poll()
	if refused == 0 {
		t.Error("no fault was injected")
	}
	for i, c := range r.got[1] {
		if c.Imm != uint32(i) {
			t.Errorf("arrival %d: %+v", i, c)
		}
	}
	if len(r.got[1]) != len(wrs) || len(r.got[0]) != len(wrs) {
		t.Errorf("%d arrivals, %d completions", len(r.got[1]), len(r.got[0]))
	}
}
