package peerproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// frame makes a frame of the bytes of a body.
func frame(body string) *bytes.Buffer {
	return bytes.NewBuffer(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

// A frame takes not much more memory than it has bytes: of a list of very many small elements no more are made than the longest list
// that means something has. What is counted is all that was taken while it grew, of which less than half is held at a time.
func TestFrameOfManyElements(t *testing.T) {
	for name, c := range map[string]struct{ begin, element, end string }{
		"stages":  {`{"type":"traced","trace":{"stages":[`, `{}`, `]}}`},
		"others":  {`{"type":"open","lane":{},"TRACE":{"\u0073tages":[`, `{}`, `]}}`},
		"marks":   {`{"type":"trace","trace":{"marks":[`, `0`, `]}}`},
		"methods": {`{"type":"directory","directory":[`, `{}`, `]}`},
		"fabrics": {`{"type":"open","hello":{"fabrics":[`, `""`, `]}}`},
	} {
		n := (MaxFrame - len(c.begin) - len(c.end)) / (len(c.element) + 1)
		r := frame(c.begin + strings.Repeat(c.element+",", n-1) + c.element + c.end)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := Read(r, MaxFrame)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %d elements: %v", name, n, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%s: a frame takes %d bytes", name, took)
		}
		runtime.KeepAlive(m)
	}
}

// The longest lists that there are pass.
func TestLongestLists(t *testing.T) {
	stage := Stage{Mark: math.MaxUint64, Given: math.MaxInt64, Began: math.MaxInt64, Ended: math.MaxInt64, Now: math.MaxInt64, Queued: true, Name: strings.Repeat("x", 64)}
	followed := &Message{Type: TypeTraced, Trace: &Trace{}}
	for range slots.TakenStamps {
		followed.Trace.Marks = append(followed.Trace.Marks, stage.Mark)
		followed.Trace.Stages = append(followed.Trace.Stages, stage)
	}
	var b bytes.Buffer
	if err := Write(&b, followed); err != nil {
		t.Fatal(err)
	}
	if m, err := Read(&b, MaxFrame); err != nil || len(m.Trace.Stages) != slots.TakenStamps || len(m.Trace.Marks) != slots.TakenStamps || m.Trace.Stages[1] != stage {
		t.Errorf("a trace: %v", err)
	}
	// As many methods as a frame has room for, of the shortest names that there are.
	const shortest = `{"domain":"d","service":"s","method":"m","id":0,"answer":0}`
	n := (MaxFrame - 64) / (len(shortest) + 1)
	m, err := Read(frame(`{"type":"directory","directory":[`+strings.Repeat(shortest+",", n-1)+shortest+`]}`), MaxFrame)
	if err != nil || len(m.Directory) != n || m.Directory[n-1].Method != "m" {
		t.Errorf("a directory of %d methods: %v", n, err)
	}
}

// What is no part of a message of its type is not kept with it; what is part of it is, and what nobody knows does no harm.
func TestPartsOfOthers(t *testing.T) {
	const all = `"seq":7,"hello":{"fabrics":["tcp"]},"clock":5,"reason":"r","directory":[{"method":"m"}],"lane":{"class":"c"},"caller":3,` +
		`"region":{"index":1},"trace":{"marks":[1],"stages":[{"mark":1}]},"new":{"list":[{},{}]}}`
	for kind, want := range map[Type]Message{
		TypeHello: {Hello: &Hello{}}, TypeReady: {Clock: 5}, TypeClock: {Clock: 5}, TypePong: {Clock: 5}, TypeReject: {Reason: "r"}, TypeRefuse: {Reason: "r"},
		TypeDirectory: {Directory: Listings{{}}}, TypeOpen: {Lane: &Lane{}}, TypeAccept: {Lane: &Lane{}}, TypeBroken: {Lane: &Lane{}, Reason: "r"},
		TypeGone: {Lane: &Lane{}, Caller: 3}, TypeExport: {Region: &Region{}}, TypeUnexport: {Region: &Region{}}, TypeRevoke: {Region: &Region{}},
		TypeTrace: {Trace: &Trace{}}, TypeTraced: {Trace: &Trace{}}, TypePing: {}, TypeExported: {}, TypeDrain: {}, "later": {},
	} {
		m, err := Read(frame(`{"type":"`+string(kind)+`",`+all), MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != kind || m.Seq != 7 || m.Clock != want.Clock || m.Reason != want.Reason || m.Caller != want.Caller || len(m.Directory) != len(want.Directory) ||
			(m.Hello == nil) != (want.Hello == nil) || (m.Lane == nil) != (want.Lane == nil) || (m.Region == nil) != (want.Region == nil) || (m.Trace == nil) != (want.Trace == nil) {
			t.Errorf("%s: %+v", kind, m)
		}
	}
}
