package blast

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
)

// batch is how many completions are taken at once.
const batch = 64

// creditSize is what a credit writes.
const creditSize = 8

// server is the side that messages go to, or that is read.
type server struct {
	t   *Tool
	s   *perf.Session
	ep  fabric.Endpoint
	mem []byte
	layout
	inline int

	size int
	// got is the first message that has not arrived; there marks those behind it that have,
	// by their number modulo the window.
	got    uint64
	there  []bool
	posted uint64 // receives
	told   uint64 // got, as the client knows it
	// credits are under way.
	credits int
	last    uint64 // there are no messages from this one on; 0: that is not known

	wc  [batch]fabric.Completion
	wrs [1]fabric.SendWR
	rwr [batch]fabric.RecvWR
}

func newServer(t *Tool, s *perf.Session) (*server, error) {
	v := &server{t: t, s: s, ep: s.Endpoints[0], mem: s.Region.Bytes(), layout: t.layout(), inline: t.InlineLimit(s.Caps)}
	if uint64(v.layout.size) > s.Peer.Len {
		return nil, fmt.Errorf("the client has %d bytes of memory, %d are needed", s.Peer.Len, v.layout.size)
	}
	v.there = make([]bool, v.window)
	if t.credited() {
		for left := v.window; left > 0; left -= batch {
			if err := v.receive(min(left, batch)); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// receive posts receives. Sends arrive in order, so each is that of a certain message.
func (v *server) receive(count int) error {
	for i := range v.rwr[:count] {
		v.rwr[i] = fabric.RecvWR{}
		if v.t.Op == opSend {
			v.rwr[i].Local = fabric.Local{Region: v.s.Region, Offset: uint64(v.offset(v.posted)), Len: uint32(v.stride)}
		}
		v.posted++
	}
	_, err := v.ep.PostRecv(v.rwr[:count])
	return err
}

func (v *server) serve(ctx context.Context) error {
	for _, size := range v.t.Sizes {
		if err := v.serveSize(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

func (v *server) serveSize(ctx context.Context, size int) error {
	v.size, v.last = size, 0
	if v.t.Count > 0 {
		v.last = v.got + v.t.Count
	}
	if v.t.Verify {
		for slot := range v.slots {
			msg := v.slot(uint64(slot))
			clear(msg)
			if v.t.Op == opRead {
				content.Fill(msg, content.Stamp(v.t.Seed, uint64(slot)))
			}
		}
	}
	if err := v.s.Barrier(ctx); err != nil {
		return err
	}
	meter := perf.StartMeter()
	e, err := v.arrivals(ctx)
	if err != nil {
		return err
	}
	if v.t.credited() && e.Messages != v.got {
		return fmt.Errorf("%d messages have arrived, %d were sent", v.got, e.Messages)
	}
	return v.s.Link.Send(kindServed, served{CPU: meter.Read()})
}

// arrivals takes messages until the client says that they have all arrived.
func (v *server) arrivals(ctx context.Context) (e ending, err error) {
	for {
		n, err := v.s.Await(ctx, v.wc[:])
		if err != nil {
			return e, err
		}
		if err := v.takeAll(ctx, v.wc[:n]); err != nil {
			return e, err
		}
		if n > 0 {
			continue
		}
		m, err := v.s.Link.Next(ctx)
		if err != nil {
			return e, err
		}
		switch m.Kind() {
		case kindEnd:
			return e, m.Into(&e)
		case kindLast:
			if err = m.Into(&e); err == nil {
				v.last = e.Messages
				err = v.credit(ctx)
			}
		case kindCheck:
			err = v.check(m)
		default:
			err = m.Unexpected()
		}
		if err != nil {
			return e, err
		}
	}
}

// takeAll takes what has completed: messages that have arrived, and credits that have left.
func (v *server) takeAll(ctx context.Context, done []fabric.Completion) error {
	messages := 0
	for i := range done {
		if op := done[i].Op; op == fabric.OpRecv || op == fabric.OpRecvImm {
			messages++
			if err := v.take(&done[i]); err != nil {
				return err
			}
		} else {
			v.credits--
		}
	}
	// In this order: a credit says that there are receives.
	if messages > 0 {
		if err := v.receive(messages); err != nil {
			return err
		}
	}
	return v.credit(ctx)
}

// take takes a message that has arrived.
func (v *server) take(c *fabric.Completion) error {
	if int(c.Len) != v.size && !(c.Op == fabric.OpRecvImm && v.s.Caps.UnsizedImm) {
		return fmt.Errorf("a message of %d bytes instead of %d", c.Len, v.size)
	}
	n := v.got
	if c.Op == fabric.OpRecvImm {
		ahead := c.Imm - uint32(v.got)
		if uint64(ahead) >= uint64(v.window) || v.there[(v.got+uint64(ahead))%uint64(v.window)] {
			return fmt.Errorf("message %d has come, where one of the %d from %d on can come that have not come yet", c.Imm, v.window, uint32(v.got))
		}
		n += uint64(ahead)
	}
	if err := v.look(n); err != nil {
		return err
	}
	v.there[n%uint64(v.window)] = true
	for v.there[v.got%uint64(v.window)] {
		v.there[v.got%uint64(v.window)] = false
		v.got++
	}
	return nil
}

// slot is the memory of message n.
func (v *server) slot(n uint64) []byte {
	at := v.offset(n)
	return v.mem[at : at+v.size]
}

// look verifies message n, and removes it, so that it is not taken for a later one.
func (v *server) look(n uint64) error {
	if !v.t.Verify {
		return nil
	}
	msg := v.slot(n)
	if !content.Intact(msg, v.size, content.Stamp(v.t.Seed, n)) {
		return fmt.Errorf("message %d of %d bytes has the wrong content", n, v.size)
	}
	clear(msg)
	return nil
}

// credit tells the client what has arrived, if that is a quarter of the window or all there
// is. Without room in the send queue that has time until an earlier credit has left, whose
// completion leads here again.
func (v *server) credit(ctx context.Context) error {
	if !v.t.credited() || v.told == v.got || v.got-v.told < uint64(max(1, v.window/4)) && v.got != v.last {
		return nil
	}
	// The immediate says it all; the word only is something to write.
	binary.LittleEndian.PutUint64(v.mem[v.source:], v.got)
	v.wrs[0] = fabric.SendWR{
		Op: fabric.OpWriteImm, Flags: fabric.FlagSignaled, Imm: uint32(v.got),
		Local:     fabric.Local{Region: v.s.Region, Offset: uint64(v.source), Len: creditSize},
		RemoteKey: v.s.Peer.Key, RemoteAddr: v.s.Peer.Addr + uint64(v.word),
	}
	if v.inline >= creditSize {
		v.wrs[0].Flags |= fabric.FlagInline
	}
	defer v.s.Resume()
	for {
		n, err := v.ep.PostSend(v.wrs[:])
		if n == 1 {
			v.told = v.got
			v.credits++
			return nil
		}
		if !perf.Full(err) {
			return err
		}
		if v.credits > 0 {
			return nil
		}
		if err := v.s.Spin(ctx); err != nil {
			return err
		}
	}
}

// check verifies plain writes, which are all here.
func (v *server) check(m link.Message) error {
	var asked checking
	if err := m.Into(&asked); err != nil {
		return err
	}
	if asked.To-asked.From > uint64(v.window) {
		return fmt.Errorf("the client asks for messages %d to %d to be verified, of which %d can be there", asked.From, asked.To, v.window)
	}
	for n := asked.From; n < asked.To; n++ {
		if err := v.look(n); err != nil {
			return err
		}
	}
	return v.s.Link.Send(kindChecked, nothing{})
}
