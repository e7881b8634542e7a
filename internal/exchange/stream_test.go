package exchange_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/internal/exchange"
)

// pipe is a stream from an outbox to an inbox, with what travels between them.
type pipe struct {
	out    *exchange.Outbox
	in     *exchange.Inbox
	window int
	sent   [][]byte // messages whose sending has begun
	// frame and rest are what of the last one is not in the outbox.
	frame, rest []byte
	received    int
	told        uint64 // credit that is on its way back
}

// A message that is sent arrives once, in order, whole, whatever the sizes of parts and
// whenever credit comes; and the inbox never holds more than the window and one message.
func TestStreamKeepsMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(4, 100).Draw(t, "window")
		p := &pipe{in: exchange.NewInbox(window, 1000), out: exchange.NewOutbox(rapid.IntRange(4, 100).Draw(t, "room"), uint64(window)), window: window}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				if len(p.frame)+len(p.rest) == 0 {
					msg := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "message")
					p.sent = append(p.sent, msg)
					var frame [exchange.FrameSize]byte
					exchange.PutFrame(frame[:], len(msg))
					p.frame, p.rest = frame[:], msg
				}
				p.fill()
			},
			"part": func(t *rapid.T) {
				p.part(t, rapid.IntRange(0, 64).Draw(t, "size"))
				p.fill()
			},
			"read": func(t *rapid.T) { p.read(t) },
			"tell": func(t *rapid.T) {
				limit, gain := p.in.Credit(rapid.Bool().Draw(t, "waiting"))
				if limit < p.told || gain > 0 && limit-gain != p.told && p.told != 0 {
					t.Fatalf("credit %d, %d more, after %d", limit, gain, p.told)
				}
				p.in.Tell(limit)
				p.told = limit
			},
			"credit": func(t *rapid.T) {
				if err := p.out.Extend(p.told); err != nil {
					t.Fatal(err)
				}
			},
		})
		p.finish(t)
	})
}

func (p *pipe) fill() {
	p.frame, p.rest = p.out.Fill(p.frame, p.rest)
}

func (p *pipe) part(t *rapid.T, size int) {
	data, off := p.out.Next(size)
	if len(data) > size {
		t.Fatalf("a part of %d bytes instead of %d", len(data), size)
	}
	if err := p.in.Add(off, bytes.Clone(data)); err != nil {
		t.Fatal(err)
	}
}

func (p *pipe) read(t *rapid.T) bool {
	msg, ok, _ := p.in.Take()
	if !ok {
		return false
	}
	if p.received >= len(p.sent) || !bytes.Equal(msg, p.sent[p.received]) {
		t.Fatalf("message %d is %x", p.received, msg)
	}
	p.received++
	return true
}

// finish ends the stream, with a reader that waits: everything arrives, in a bounded
// number of steps.
func (p *pipe) finish(t *rapid.T) {
	for range 100_000 {
		p.fill()
		if len(p.frame)+len(p.rest) == 0 {
			p.out.End()
		}
		p.part(t, 50)
		for p.read(t) {
		}
		limit, _ := p.in.Credit(true)
		p.in.Tell(limit)
		if err := p.out.Extend(limit); err != nil {
			t.Fatal(err)
		}
		if p.out.TakeEnd() {
			if err := p.in.End(); err != nil {
				t.Fatal(err)
			}
			if _, ok, end := p.in.Take(); p.received != len(p.sent) || ok || !end || !p.out.Over() || p.out.EndDue() {
				t.Fatalf("%d messages of %d, end %v", p.received, len(p.sent), end)
			}
			return
		}
	}
	t.Fatalf("stuck after %d messages of %d", p.received, len(p.sent))
}

// What no correct sender does is refused.
func TestInboxRefuses(t *testing.T) {
	frame := []byte{3, 0, 0, 0, 'a', 'b', 'c'}
	for name, f := range map[string]func(in *exchange.Inbox) error{
		"a gap":                     func(in *exchange.Inbox) error { return in.Add(1, frame) },
		"bytes that came before":    func(in *exchange.Inbox) error { return errors.Join(in.Add(0, frame), in.Add(0, frame)) },
		"more than its credit":      func(in *exchange.Inbox) error { return in.Add(0, make([]byte, 17)) },
		"a message too large":       func(in *exchange.Inbox) error { return in.Add(0, []byte{11, 0, 0, 0}) },
		"a huge message":            func(in *exchange.Inbox) error { return in.Add(0, []byte{0xff, 0xff, 0xff, 0xff}) },
		"the end within a message":  func(in *exchange.Inbox) error { return errors.Join(in.Add(0, frame[:6]), in.End()) },
		"the end within a frame":    func(in *exchange.Inbox) error { return errors.Join(in.Add(0, frame[:1]), in.End()) },
		"bytes behind the end":      func(in *exchange.Inbox) error { return errors.Join(in.Add(0, frame), in.End(), in.Add(7, frame)) },
		"credit from nowhere":       func(*exchange.Inbox) error { return exchange.NewOutbox(8, 0).Extend(1 << 40) },
		"credit that would wrap up": func(*exchange.Inbox) error { return exchange.NewOutbox(8, 0).Extend(1<<64 - 1) },
	} {
		if err := f(exchange.NewInbox(16, 10)); !errors.Is(err, exchange.ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := exchange.NewInbox(16, 10)
	if err := errors.Join(in.Add(0, frame), in.Add(7, nil), in.End(), in.End(), in.Add(7, nil)); err != nil || in.Got() != 7 || in.Window() != 16 {
		t.Errorf("%v, %d bytes", err, in.Got())
	}
}

// A message that is larger than the window passes when its reader waits, and not before.
func TestLargeMessageThroughSmallWindow(t *testing.T) {
	in := exchange.NewInbox(16, 1000)
	if err := in.Add(0, append([]byte{100, 0, 0, 0}, make([]byte, 12)...)); err != nil {
		t.Fatal(err)
	}
	if limit, gain := in.Credit(false); limit != 16 || gain != 0 {
		t.Errorf("credit up to %d without a reader", limit)
	}
	if limit, gain := in.Credit(true); limit != 32 || gain != 16 {
		t.Errorf("credit up to %d for a reader", limit)
	}
}

// Reading a stream of small messages allocates one slice for each.
func TestInboxAllocations(t *testing.T) {
	in := exchange.NewInbox(1<<20, 1000)
	frame := []byte{3, 0, 0, 0, 'a', 'b', 'c'}
	at := uint64(0)
	n := testing.AllocsPerRun(1000, func() {
		if in.Add(at, frame) != nil {
			t.Fatal("refused")
		}
		at += 7
		in.Take()
		limit, _ := in.Credit(false)
		in.Tell(limit)
	})
	if n > 1 {
		t.Errorf("%v allocations for a message", n)
	}
}

// A reader that never comes to the last message costs no more than one that does.
func TestInboxOfBusyReader(t *testing.T) {
	in := exchange.NewInbox(1<<20, 1000)
	frame := []byte{3, 0, 0, 0, 'a', 'b', 'c'}
	at, waiting := uint64(0), 3
	add := func() {
		if err := in.Add(at, frame); err != nil {
			t.Fatal(err)
		}
		at += 7
	}
	for range waiting {
		add()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const count = 200_000
	for range count {
		add()
		if msg, ok, _ := in.Take(); !ok || string(msg) != "abc" {
			t.Fatalf("%q, %v", msg, ok)
		}
		limit, _ := in.Credit(false)
		in.Tell(limit)
	}
	runtime.ReadMemStats(&after)
	// A slice that grows is allocated anew each time.
	if more := after.TotalAlloc - before.TotalAlloc; more > 3*8*count {
		t.Errorf("%d bytes for %d messages of 3 bytes", more, count)
	}
	for range waiting {
		if msg, ok, _ := in.Take(); !ok || string(msg) != "abc" {
			t.Fatalf("%q, %v", msg, ok)
		}
	}
	if _, ok, _ := in.Take(); ok {
		t.Error("one message too many")
	}
}

// A message that is cut off is not followed by an end.
func TestInboxCutOff(t *testing.T) {
	in := exchange.NewInbox(16, 10)
	if err := in.Add(0, []byte{3, 0, 0, 0, 'a'}); err != nil {
		t.Fatal(err)
	}
	if err := in.End(); !errors.Is(err, exchange.ErrProtocol) {
		t.Errorf("the end: %v", err)
	}
	if _, ok, end := in.Take(); ok || end {
		t.Errorf("message %v, end %v", ok, end)
	}
}

// However small the messages of a window are, they take not much more than the window while they wait.
func TestInboxOfTinyMessages(t *testing.T) {
	for _, size := range []int{0, 1, 7, 100, 256, 257, 1000} {
		var stream []byte
		for len(stream)+exchange.FrameSize+size <= exchange.Window {
			stream = append(binary.LittleEndian.AppendUint32(stream, uint32(size)), make([]byte, size)...)
		}
		in := exchange.NewInbox(exchange.Window, exchange.MaxMessage)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		if err := in.Add(0, stream[:1001]); err != nil {
			t.Fatal(err)
		}
		if err := in.Add(1001, stream[1001:]); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 3*exchange.Window/2 {
			t.Errorf("messages of %d bytes: %d bytes for %d", size, grown, len(stream))
		}
		n := 0
		for msg, ok, _ := in.Take(); ok; msg, ok, _ = in.Take() {
			if n++; len(msg) != size {
				t.Fatalf("a message of %d bytes, not %d", len(msg), size)
			}
		}
		if want := len(stream) / (exchange.FrameSize + size); n != want {
			t.Errorf("%d messages of %d", n, want)
		}
	}
}
