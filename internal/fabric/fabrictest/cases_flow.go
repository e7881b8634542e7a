package fabrictest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"github.com/rdmad/rdmad/internal/fabric"
)

var flowCases = []suiteCase{
	{"queue full", caseQueueFull},
	{"signaled every n", caseSignaledEveryN},
	{"small polls", caseSmallPolls},
	{"many endpoints", caseManyEndpoints},
	{"storm", caseStorm},
}

// The depths are limits, and polling makes room again.
func caseQueueFull(w *world) {
	const depth = 8
	a, b := w.connect(shape{send: depth, recv: depth})
	var wrs []fabric.SendWR
	for i := range depth + 3 {
		wrs = append(wrs, a.writeImm(i*8, 8, 0, uint32(i)))
	}
	recvs := make([]fabric.RecvWR, depth+1)
	if n, err := b.ep.PostRecv(recvs); n != depth || !errors.Is(err, fabric.ErrQueueFull) {
		w.Fatalf("PostRecv took %d, %v", n, err)
	}
	n, err := a.ep.PostSend(wrs)
	if n != depth || !errors.Is(err, fabric.ErrQueueFull) {
		w.Fatalf("PostSend took %d, %v", n, err)
	}
	if n, err := a.ep.PostSend(wrs[n:]); n != 0 || !errors.Is(err, fabric.ErrQueueFull) {
		w.Fatalf("PostSend to a full queue took %d, %v", n, err)
	}
	a.await(depth)
	b.await(depth)
	b.recv(3)
	a.post(wrs[depth:]...)
	order := w.newTally()
	for i, c := range b.take(depth + 3) {
		order.add(c, uint32(i))
	}
	a.take(depth + 3)
}

// A completion every n requests is enough to keep the queue moving.
func caseSignaledEveryN(w *world) {
	const depth, every, total = 16, 5, 500
	a, b := w.connect(shape{send: depth, recv: 64})
	b.recv(64)
	came := 0
	order := w.newTally()
	for id := uint64(1); id <= total; id++ {
		wr := a.writeImm(0, 8, 0, uint32(id))
		if id%every != 0 {
			wr.Flags = 0
		}
		w.until(func() bool {
			n, _ := a.ep.PostSend([]fabric.SendWR{wr})
			return n == 1
		}, "room for request %d", id)
		w.until(func() bool { return int(id)-came-len(b.got) < 32 }, "arrival of request %d", id)
		if k := len(b.got); k > 16 {
			for _, c := range b.take(k) {
				came++
				order.add(c, uint32(came))
			}
			b.recv(k)
		}
	}
	b.await(total - came)
	for i, c := range a.take(total / every) {
		if c.ID != uint64((i+1)*every) || c.Status != fabric.StatusSuccess {
			w.Fatalf("completion %d is %+v", i, c)
		}
	}
	w.silent(a)
}

// A caller with room for one completion gets all of them, in order.
func caseSmallPolls(w *world) {
	const n = 50
	a, b := w.connect(shape{})
	b.recv(n)
	for i := range n {
		a.post(a.writeImm(0, 8, 0, uint32(i)))
	}
	w.batch = 1
	order := w.newTally()
	for i := range n {
		if c := a.take(1)[0]; c.ID != uint64(i) {
			w.Fatalf("completion %d is %+v", i, c)
		}
		order.add(b.take(1)[0], uint32(i))
	}
	if k, err := w.sides[0].cq.Poll(nil); k != 0 || err != nil {
		w.Fatalf("Poll without room: %d, %v", k, err)
	}
	// The end of a connection fits through the same hole.
	a.recv(5)
	w.must(b.ep.Close())
	a.take(6)
	w.silent(a)
}

// Endpoints of one queue do not get into each other's way.
func caseManyEndpoints(w *world) {
	const links, rounds = 24, 10
	var as, bs []*end
	for range links {
		a, b := w.connect(shape{memory: 4096, send: 16, recv: 16})
		as, bs = append(as, a), append(bs, b)
	}
	for round := range rounds {
		for i, a := range as {
			fill(a.mr.Bytes()[:256], uint64(round*links+i))
			bs[i].recv(1)
			a.post(a.writeImm(0, 256, 0, uint32(i)))
		}
		for i, b := range bs {
			if c := b.take(1)[0]; c.Imm != uint32(i) {
				w.Fatalf("arrival at endpoint %d: %+v", i, c)
			}
			as[i].take(1)
			w.same(b.mr.Bytes()[:256], as[i].mr.Bytes()[:256], "one of many")
		}
	}
}

// stormSlot is the place of one message in each end's memory.
const (
	stormSlot  = 20 << 10
	stormSlots = 16
)

// Both sides send messages of random sizes as fast as they can; every one arrives
// once, in order and unchanged.
func caseStorm(w *world) {
	const total = 400
	a, b := w.connect(shape{memory: 2 * stormSlots * stormSlot, send: 64, recv: stormSlots})
	r := rand.New(rand.NewPCG(1, 2))
	players := [2]*stormer{{end: a, r: r, free: stormSlots, ahead: map[int]bool{}}, {end: b, r: r, free: stormSlots, ahead: map[int]bool{}}}
	a.recv(stormSlots)
	b.recv(stormSlots)
	w.until(func() bool {
		for i, p := range players {
			// The peer may use the slots of what came again.
			players[1-i].free += p.receive()
		}
		// Only now: what one side has given back may be all that the other has waited for.
		for _, p := range players {
			p.send(total)
		}
		return players[0].came == total && players[1].came == total
	}, "storm")
}

// stormer is one side of the storm.
type stormer struct {
	end              *end
	r                *rand.Rand
	sent, came, free int
	// ahead are messages that have come before others that were sent before them.
	ahead map[int]bool
}

// send posts up to a random number of messages while there are free slots, at
// least one: nothing else would wake the storm again.
func (p *stormer) send(total int) {
	for p.free > 0 && p.sent < total {
		off := p.sent % stormSlots * stormSlot
		n := stormSize(p.sent)
		msg := p.end.mr.Bytes()[off : off+n]
		stormMessage(msg, p.sent)
		wr := p.end.writeImm(off, n, stormSlots*stormSlot, uint32(p.sent))
		if k, _ := p.end.ep.PostSend([]fabric.SendWR{wr}); k == 0 {
			return
		}
		p.sent++
		p.free--
		if p.r.IntN(4) == 0 {
			return
		}
	}
}

// receive checks what came, and returns how many more have come without a gap.
func (p *stormer) receive() int {
	w, n := p.end.w, 0
	for _, c := range p.end.take(len(p.end.got)) {
		if c.Status != fabric.StatusSuccess {
			w.Fatalf("storm: %+v", c)
		}
		if c.Op != fabric.OpRecvImm {
			continue
		}
		number := int(c.Imm)
		if number != p.came && w.caps().OrderedWrites || number < p.came || p.ahead[number] || number >= p.came+stormSlots {
			w.Fatalf("storm: message %d after %d", number, p.came)
		}
		off := (stormSlots + number%stormSlots) * stormSlot
		want := make([]byte, stormSize(number))
		if int(c.Len) != len(want) && !w.caps().UnsizedImm {
			w.Fatalf("storm: message %d of %d bytes: %+v", number, len(want), c)
		}
		stormMessage(want, number)
		w.same(p.end.mr.Bytes()[off:off+len(want)], want, "storm message")
		p.ahead[number] = true
		p.end.recv(1)
		for ; p.ahead[p.came]; n++ {
			delete(p.ahead, p.came)
			p.came++
		}
	}
	return n
}

// stormSize is how long message i is: mostly short.
func stormSize(i int) int {
	r := rand.New(rand.NewPCG(uint64(i), 3))
	if r.IntN(8) == 0 {
		return 8 + r.IntN(stormSlot-8)
	}
	return 8 + r.IntN(200)
}

func stormMessage(b []byte, i int) {
	binary.LittleEndian.PutUint64(b, uint64(i))
	fill(b[8:], uint64(i))
}
