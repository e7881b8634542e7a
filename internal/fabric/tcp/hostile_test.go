package tcp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

const base = 1 << 20 // of a wire's memory

// Every violation ends the connection once, changes no byte, and is answered with
// a NAK if it is a request.
func TestHostileFrames(t *testing.T) {
	le := binary.LittleEndian
	poke := func(off int, v ...byte) func([]byte) { return func(b []byte) { copy(b[off:], v) } }
	for name, c := range map[string]struct {
		op     wireOp
		addr   uint64
		size   int
		change func(b []byte)
		nak    fabric.Status
		vendor uint32
	}{
		"unknown op":           {wireWrite, base, 8, poke(0, 99), 0, VendorMalformed},
		"op 0":                 {wireWrite, base, 8, poke(0, 0), 0, VendorMalformed},
		"status in a request":  {wireWrite, base, 8, poke(1, 4), fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"reserved byte":        {wireWrite, base, 8, poke(2, 1), fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"imm in a write":       {wireWrite, base, 8, poke(12, 1), fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"length beyond limit":  {wireWrite, base, 8, func(b []byte) { le.PutUint32(b[8:], MaxPayload+1) }, fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"length of all ones":   {wireRead, base, 0, func(b []byte) { le.PutUint32(b[8:], 1<<32-1) }, fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"sequence gap":         {wireWrite, base, 8, poke(4, 1), 0, VendorSequence},
		"address below":        {wireWrite, base - 1, 8, nil, fabric.StatusRemoteAccess, VendorRefusedPeer},
		"address beyond":       {wireWrite, base + wireMemory - 7, 8, nil, fabric.StatusRemoteAccess, VendorRefusedPeer},
		"address wraps":        {wireWrite, 1<<64 - 4, 8, nil, fabric.StatusRemoteAccess, VendorRefusedPeer},
		"huge write":           {wireWrite, base, 8, func(b []byte) { le.PutUint32(b[8:], MaxPayload) }, fabric.StatusRemoteAccess, VendorRefusedPeer},
		"huge read":            {wireRead, base, 0, func(b []byte) { le.PutUint32(b[8:], MaxPayload) }, fabric.StatusRemoteAccess, VendorRefusedPeer},
		"key":                  {wireWriteImm, base, 8, poke(24, 78), fabric.StatusRemoteAccess, VendorRefusedPeer},
		"short atomic":         {wireFetchAdd, base, 8, nil, fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"misaligned atomic":    {wireFetchAdd, base + 4, 16, nil, fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"atomic beyond":        {wireCompareSwap, base + wireMemory, 16, nil, fabric.StatusRemoteAccess, VendorRefusedPeer},
		"send with address":    {wireSend, base, 8, nil, fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"send too long":        {wireSend, 0, 513, nil, fabric.StatusRemoteInvalid, VendorRefusedPeer},
		"answer to nothing":    {wireReadAnswer, 0, 8, poke(24, 0), 0, VendorUnexpected},
		"atomic to nothing":    {wireAtomicAnswer, 0, 8, poke(24, 0), 0, VendorUnexpected},
		"nak of nothing":       {wireNak, 0, 0, func(b []byte) { b[1], b[24] = byte(fabric.StatusRemoteAccess), 0 }, 0, VendorUnexpected},
		"nak without a reason": {wireNak, 0, 0, poke(24, 0), 0, VendorMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			watchFDs(t)
			w := newWire(t, 2)
			defer w.close()
			b := w.frame(c.op, c.addr, string(bytes.Repeat([]byte{0xff}, c.size)))
			if c.change != nil {
				c.change(b)
			}
			got := w.send(b)
			// What follows a violation is not even looked at.
			w.seq = 1
			got = append(got, w.send(w.frame(wireWriteImm, base, "late"))...)
			if n := len(got); n != 3 || got[2].Op != fabric.OpDisconnect || got[2].Vendor != c.vendor || got[2].Status == fabric.StatusSuccess {
				t.Errorf("completions %+v, want two receives and a disconnect with %#x", got, c.vendor)
			}
			if i := bytes.IndexFunc(w.mem.mem, func(r rune) bool { return r != 0 }); i >= 0 {
				t.Errorf("byte %d changed", i)
			}
			reply := w.receive()
			if c.nak == 0 {
				if len(reply) != 0 {
					t.Errorf("reply %x", reply)
				}
				return
			}
			var f frame
			if len(reply) != headerSize || !parseHeader(reply, &f) || f.op != wireNak || f.status != c.nak || f.seq != 0 {
				t.Errorf("reply %x, want a NAK with %v", reply, c.nak)
			}
		})
	}
}

// A peer may not ask for more answers than it is allowed to wait for.
func TestTooManyReads(t *testing.T) {
	w := newWire(t, 0)
	defer w.close()
	var b []byte
	for range maxReads + 1 {
		f := w.frame(wireRead, base, "")
		binary.LittleEndian.PutUint32(f[8:], 8)
		b = append(b, f...)
	}
	// They come in with one read, so that no answer leaves in between.
	got := w.send(b)
	if len(got) != 1 || got[0].Op != fabric.OpDisconnect || got[0].Vendor != VendorRefusedPeer {
		t.Errorf("completions %+v", got)
	}
	if n := len(w.receive()); n != maxReads*(headerSize+8)+headerSize {
		t.Errorf("%d bytes of answers", n)
	}
}

// A region that is closed while a write into it is under way is left alone.
func TestRegionClosedUnderWay(t *testing.T) {
	w := newWire(t, 0)
	defer w.close()
	b := w.frame(wireWrite, base, string(bytes.Repeat([]byte{1}, 8000)))
	if got := w.send(b[:5000]); len(got) != 0 {
		t.Fatalf("completions %+v", got)
	}
	must(t, w.mem.Close())
	got := w.send(b[5000:])
	if len(got) != 1 || got[0].Vendor != VendorRefusedPeer {
		t.Errorf("completions %+v", got)
	}
	if n := bytes.Count(w.mem.mem, []byte{1}); n != 5000-headerSize {
		t.Errorf("%d bytes written", n)
	}
}

// A region is closed while half of an answer is in the socket and a refusal waits behind it: the
// connection ends.
func TestRegionClosedBeforeRefusal(t *testing.T) {
	w := newWire(t, 0)
	defer w.close()
	must(t, unix.SetsockoptInt(w.ep.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096))
	read := func(key uint64) []byte {
		b := make([]byte, headerSize)
		putHeader(b, &frame{op: wireRead, seq: w.seq, length: wireMemory, addr: base, key: key})
		w.seq++
		return b
	}
	got := w.send(append(append(read(77), read(77)...), read(78)...))
	if w.ep.tx.partial == nil || w.ep.link != linkRefusing {
		t.Fatalf("half an answer %v, link %v, completions %+v", w.ep.tx.partial != nil, w.ep.link, got)
	}
	must(t, w.mem.Close())
	for range 100 {
		w.receive()
		w.ep.Ready(0, unix.EPOLLOUT)
		got = append(got, w.poll()...)
	}
	if len(got) != 1 || got[0].Op != fabric.OpDisconnect || got[0].Vendor != VendorRefusedPeer {
		t.Errorf("completions %+v", got)
	}
}

// A queued answer from a region that is closed before it leaves becomes a NAK.
func TestRegionClosedBeforeAnswer(t *testing.T) {
	w := newWire(t, 0)
	defer w.close()
	w.ep.answer(&frame{op: wireReadAnswer, seq: 0, length: 8}).region = w.mem
	w.ep.rx.expect = 1
	must(t, w.mem.Close())
	w.ep.flush()
	w.poll()
	var f frame
	if b := w.receive(); len(b) != headerSize || !parseHeader(b, &f) || f.op != wireNak || f.status != fabric.StatusRemoteAccess {
		t.Errorf("reply %x", b)
	}
}

// The peer's refusal finds its work request while the queue remembers it.
func TestRefusedByPeer(t *testing.T) {
	nak := func(seq uint32) []byte {
		b := make([]byte, headerSize)
		putHeader(b, &frame{op: wireNak, status: fabric.StatusRemoteAccess, seq: seq})
		return b
	}
	post := func(w *wire, n int, flags fabric.Flags) {
		for i := range n {
			if _, err := w.ep.PostSend([]fabric.SendWR{{ID: uint64(100 + i), Op: fabric.OpWriteImm, Flags: flags}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("unsignaled", func(t *testing.T) {
		w := newWire(t, 0)
		defer w.close()
		post(w, 3, 0)
		got := w.send(nak(1))
		if len(got) != 2 || got[0].ID != 101 || got[0].Status != fabric.StatusRemoteAccess || got[1].Status != fabric.StatusRemoteAccess {
			t.Errorf("completions %+v", got)
		}
	})
	t.Run("reported", func(t *testing.T) {
		w := newWire(t, 0)
		defer w.close()
		post(w, 3, fabric.FlagSignaled)
		if got := w.poll(); len(got) != 3 {
			t.Fatalf("completions %+v", got)
		}
		got := w.send(nak(1))
		if len(got) != 1 || got[0].Op != fabric.OpDisconnect || got[0].Status != fabric.StatusRemoteAccess {
			t.Errorf("completions %+v", got)
		}
	})
	t.Run("forgotten", func(t *testing.T) {
		w := newWire(t, 0)
		defer w.close()
		post(w, 100, 0)
		got := w.send(nak(1))
		if len(got) != 1 || got[0].Op != fabric.OpDisconnect || got[0].Status != fabric.StatusRemoteAccess {
			t.Errorf("completions %+v", got)
		}
	})
}
