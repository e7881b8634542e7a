package exchange_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/exchange"
)

// Whatever bytes come, decoding does not fail but with ErrProtocol, and what it accepts
// is what encoding makes.
func FuzzPart(f *testing.F) {
	b := make([]byte, exchange.PartSize, 100)
	(&exchange.PartRequest{ID: 7, Offset: 1 << 33, Credit: 5, Op: exchange.OpPush, Length: 3}).Encode(b)
	f.Add(append(bytes.Clone(b), "abc"...))
	(&exchange.PartRequest{Credit: 5, Op: exchange.OpOpenStream}).Encode(b)
	f.Add(bytes.Clone(b))
	(&exchange.PartAnswer{ID: 7, Offset: 1, Credit: 9, Kind: exchange.KindData, Flags: exchange.FlagEnd, To: 4095, Length: 2}).Encode(b)
	f.Add(append(bytes.Clone(b), "ab\x01\x00\x00\x00no"...))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := make([]byte, exchange.PartSize)
		var q exchange.PartRequest
		data, err := q.Decode(in)
		switch {
		case err != nil && !errors.Is(err, exchange.ErrProtocol):
			t.Error(err)
		case err == nil:
			if q.Encode(out); !bytes.Equal(out, in[:exchange.PartSize]) || !bytes.Equal(data, in[exchange.PartSize:]) {
				t.Errorf("% x became %+v, % x", in, q, out)
			}
			if (q.ID == 0) != (q.Op == exchange.OpOpenCall || q.Op == exchange.OpOpenStream) {
				t.Errorf("accepted %+v", q)
			}
		}
		var a exchange.PartAnswer
		data, rest, err := a.Decode(in)
		switch {
		case err != nil && !errors.Is(err, exchange.ErrProtocol):
			t.Error(err)
		case err == nil:
			if a.Encode(out); !bytes.Equal(out, in[:exchange.PartSize]) || len(data)+len(rest) != len(in)-exchange.PartSize {
				t.Errorf("% x became %+v, % x", in, a, out)
			}
			if _, _, err := exchange.ReadOutcome(rest); (err == nil) != (len(rest) >= exchange.OutcomeSize) {
				t.Errorf("outcome in % x: %v", rest, err)
			}
		}
	})
}

// The numbers are those of docs/protocol.md, as literals on purpose.
func TestPartLayout(t *testing.T) {
	b := make([]byte, exchange.PartSize)
	(&exchange.PartRequest{ID: 0x0102030405060708, Offset: 0x1112131415161718, Credit: 0x2122232425262728, Op: exchange.OpPush, Flags: exchange.FlagMore, Length: 0x31323334}).Encode(b)
	want := []byte{8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 3, 2, 0, 0, 0x34, 0x33, 0x32, 0x31}
	if !bytes.Equal(b, want) {
		t.Errorf("part % x", b)
	}
	(&exchange.PartAnswer{ID: 1, Offset: 2, Credit: 3, Kind: exchange.KindMore, Flags: exchange.FlagRegion, To: 0x0506, Length: 7}).Encode(b)
	want = []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 4, 6, 5, 7, 0, 0, 0}
	if !bytes.Equal(b, want) {
		t.Errorf("answer % x", b)
	}
	for i, op := range []exchange.Op{exchange.OpOpenCall, exchange.OpOpenStream, exchange.OpPush, exchange.OpRun, exchange.OpPull, exchange.OpSend, exchange.OpWait, exchange.OpClose} {
		if int(op) != i+1 {
			t.Errorf("operation %d has value %d", i+1, op)
		}
	}
	for i, k := range []exchange.Kind{exchange.KindOpened, exchange.KindAck, exchange.KindData, exchange.KindMore} {
		if int(k) != i+1 {
			t.Errorf("kind %d has value %d", i+1, k)
		}
	}
	if exchange.PartSize != 32 || exchange.FrameSize != 4 || exchange.MaxMessage != 1<<30 {
		t.Error("sizes")
	}
}

func TestGlanceOp(t *testing.T) {
	const at = 5
	b := make([]byte, at+exchange.PartSize)
	(&exchange.PartRequest{ID: 1<<64 - 1, Op: exchange.OpPull, Flags: exchange.FlagMore, Length: 1<<32 - 1}).Encode(b[at:])
	if op := exchange.GlanceOp(b, at); op != exchange.OpPull {
		t.Errorf("operation %d", op)
	}
	if op := exchange.GlanceOp(b[:at+3*8], at); op != 0 {
		t.Errorf("operation %d of a part that has none", op)
	}
}

func TestOutcome(t *testing.T) {
	b := exchange.AppendOutcome(nil, 1, "no luck")
	if status, text, err := exchange.ReadOutcome(b); status != 1 || text != "no luck" || err != nil {
		t.Errorf("%d %q %v", status, text, err)
	}
	if _, text, err := exchange.ReadOutcome(b[:7]); text != "no " || err != nil {
		t.Errorf("%q %v", text, err)
	}
}
