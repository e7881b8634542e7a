package blast

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

const (
	// batch is how many completions are taken at once.
	batch = 64
	// creditSize is what a credit writes.
	creditSize = 8
)

// receiver is the end of a queue pair that messages go to, or that is read.
type receiver struct {
	stream
	// got is the first message that has not arrived; there marks those behind it that have,
	// by their number modulo the window.
	got    uint64
	there  []bool
	posted uint64 // receives
	fresh  int    // messages that have arrived and whose receives were not posted again
	told   uint64 // got, as the sender knows it
	// credits are under way.
	credits int
	last    uint64 // there are no messages from this one on; 0: that is not known

	wrs [1]fabric.SendWR
	rwr [batch]fabric.RecvWR
}

func newReceiver(q stream) (*receiver, error) {
	v := &receiver{stream: q, there: make([]bool, q.window)}
	if q.t.credited() {
		for left := v.window; left > 0; left -= batch {
			if err := v.receive(min(left, batch)); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// receive posts receives. Sends arrive in order, so each is that of a certain message.
func (v *receiver) receive(count int) error {
	for i := range v.rwr[:count] {
		v.rwr[i] = fabric.RecvWR{}
		if v.t.Op == opSend {
			v.rwr[i].Local = v.local(v.offset(v.posted), v.stride)
		}
		v.posted++
	}
	_, err := v.ep.PostRecv(v.rwr[:count])
	return err
}

// begin makes it ready for messages of a size. Nothing is under way.
func (v *receiver) begin(size int) {
	v.size, v.last = size, 0
	if v.t.Count > 0 {
		v.last = v.got + v.t.Count
	}
	if !v.t.Verify {
		return
	}
	for n := range uint64(v.slots) {
		msg := v.slot(n)
		clear(msg)
		if v.t.Op == opRead {
			content.Fill(msg, content.Stamp(v.seed, n))
		}
	}
}

// take takes a completion: of a message that has arrived, or of a credit that has left. Settle must
// follow.
func (v *receiver) take(c *fabric.Completion) error {
	if c.Op != fabric.OpRecv && c.Op != fabric.OpRecvImm {
		v.credits--
		return nil
	}
	v.fresh++
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

// settle posts receives for messages that were taken, and gives credit for them. In this order: a
// credit says that there are receives.
func (v *receiver) settle(ctx context.Context) error {
	if v.fresh > 0 {
		fresh := v.fresh
		v.fresh = 0
		if err := v.receive(fresh); err != nil {
			return err
		}
	}
	return v.credit(ctx)
}

// look verifies message n, and removes it, so that it is not taken for a later one.
func (v *receiver) look(n uint64) error {
	if !v.t.Verify {
		return nil
	}
	msg := v.slot(n)
	if !content.Intact(msg, v.size, content.Stamp(v.seed, n)) {
		return fmt.Errorf("message %d of %d bytes has the wrong content", n, v.size)
	}
	clear(msg)
	return nil
}

// credit tells the sender what has arrived, if that is a quarter of the window or all there
// is. Without room in the send queue that has time until an earlier credit has left, whose
// completion leads here again.
func (v *receiver) credit(ctx context.Context) error {
	if !v.t.credited() || v.told == v.got || v.got-v.told < uint64(max(1, v.window/4)) && v.got != v.last {
		return nil
	}
	// The immediate says it all; the word only is something to write.
	binary.LittleEndian.PutUint64(v.mem[v.source:], v.got)
	v.wrs[0] = fabric.SendWR{
		Op: fabric.OpWriteImm, Flags: fabric.FlagSignaled, Imm: uint32(v.got),
		Local: v.local(v.source, creditSize), RemoteKey: v.s.Peer.Key, RemoteAddr: v.remote(v.word),
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
			return v.s.Refused(err)
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
func (v *receiver) check(from, to uint64) error {
	if to < from || to-from > uint64(v.window) {
		return fmt.Errorf("the other side asks for messages %d to %d to be verified, of which %d can be there", from, to, v.window)
	}
	for n := from; n < to; n++ {
		if err := v.look(n); err != nil {
			return err
		}
	}
	return nil
}
