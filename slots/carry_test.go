package slots_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

func TestCarried(t *testing.T) {
	for _, carried := range []string{"x", "traceparent", strings.Repeat("c", slots.MaxCarried)} {
		for _, payload := range []string{"", "p", strings.Repeat("p", 100)} {
			b := make([]byte, len(payload)+slots.CarrySize(len(carried)))
			slots.PutCarried(b[copy(b, payload):], []byte(carried))
			length, got, ok := slots.SplitCarried(b, []byte("before "))
			if !ok || length != len(payload) || string(got) != "before "+carried {
				t.Errorf("%d and %d bytes became %d and %q, %v", len(payload), len(carried), length, got, ok)
			}
		}
	}
	b := make([]byte, slots.CarrySize(2))
	slots.PutCarried(b, []byte("ab"))
	if want := []byte{'a', 'b', 2, 0, 1, 0xc7}; !bytes.Equal(b, want) {
		t.Errorf("% x, want % x", b, want)
	}
	if slots.CarrySize(0) != 0 {
		t.Error("nothing takes room")
	}
	for _, bad := range [][]byte{nil, {1, 0xc7}, {0, 0, 1, 0xc7}, {1, 0, 1, 0xc7}, {'a', 1, 0, 2, 0xc7}, {'a', 1, 0, 1, 0xc6}, {'a', 'b', 3, 0, 1, 0xc7}, append(make([]byte, 2000), 1, 4+1, 1, 0xc7)} {
		if _, got, ok := slots.SplitCarried(bad, nil); ok || len(got) != 0 {
			t.Errorf("% x was taken", bad)
		}
	}
}

func FuzzCarried(f *testing.F) {
	f.Add([]byte("payload" + "carried" + "\x07\x00\x01\xc7"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		length, carried, ok := slots.SplitCarried(p, nil)
		if !ok {
			return
		}
		again := append([]byte(nil), p[:length]...)
		again = append(again, make([]byte, slots.CarrySize(len(carried)))...)
		slots.PutCarried(again[length:], carried)
		if !bytes.Equal(again, p) {
			t.Errorf("% x became % x", p, again)
		}
	})
}
