package peerproto

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

func FuzzReadPeer(f *testing.F) {
	for _, m := range []*Message{
		{Type: TypePing, Seq: 1}, {Type: TypeReady, Clock: -5},
		{Type: TypeHello, Hello: &Hello{Magic: Magic, Protocol: 1, Node: "a"}},
		{Type: TypeOpen, Lane: &Lane{Domain: "d", Geometry: slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4}, Address: []byte("x")}},
		{Type: TypeDirectory, Directory: []Listing{{Domain: "d", Service: "s", Method: "m", ID: 1}}},
	} {
		var b bytes.Buffer
		if err := Write(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x04null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			m, err := Read(r, MaxHello)
			if err != nil {
				if !errors.Is(err, ErrFrame) && err != io.EOF && err != io.ErrUnexpectedEOF {
					t.Fatalf("%v", err)
				}
				return
			}
			var b bytes.Buffer
			if err := Write(&b, m); err != nil {
				t.Fatal(err)
			}
			again, err := Read(&b, MaxFrame)
			if err != nil {
				t.Fatal(err)
			}
			x, err := json.Marshal(m)
			y, err2 := json.Marshal(again)
			if err != nil || err2 != nil || !bytes.Equal(x, y) {
				t.Fatalf("%s has become %s", x, y)
			}
		}
	})
}

// What is wrong with a frame is said in a line that fits a log and an error that workers are told, whatever the frame has.
func TestProblemWithAFrameIsShort(t *testing.T) {
	for _, body := range []string{
		`{"type":"ping","seq":` + strings.Repeat("1", MaxFrame/2) + `}`, `{"type":"` + strings.Repeat("x", MaxFrame/2), `{"type":"gone","caller":"x"}`,
	} {
		var b bytes.Buffer
		b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(body))))
		b.WriteString(body)
		_, err := Read(&b, MaxFrame)
		if !errors.Is(err, ErrFrame) || len(err.Error()) > 2*maxProblem {
			t.Errorf("%.30s...: an error of %d bytes: %.200v", body, len(err.Error()), err)
		}
	}
}
