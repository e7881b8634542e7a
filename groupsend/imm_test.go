package groupsend_test

import (
	"testing"

	"github.com/rdmad/rdmad/groupsend"
)

func TestImmLiterals(t *testing.T) {
	if groupsend.MaxIndex != 16777215 || groupsend.MaxCount != 255 || groupsend.MaxGroupBytes != 262144 {
		t.Error("a limit changed")
	}
	for _, c := range []struct {
		index, count int
		want         uint32
	}{
		{0, 1, 0x00000001}, {1, 1, 0x00000101}, {0x123456, 0x78, 0x12345678}, {16777215, 255, 0xffffffff},
	} {
		if m := (groupsend.Group{Index: c.index, Count: c.count}).Imm(); uint32(m) != c.want {
			t.Errorf("%d messages from slot %d are %#x, want %#x", c.count, c.index, uint32(m), c.want)
		}
	}
}

func FuzzImm(f *testing.F) {
	f.Add(uint32(0))
	f.Add(uint32(0x12345678))
	f.Add(^uint32(0))
	f.Fuzz(func(t *testing.T, x uint32) {
		m := groupsend.Imm(x)
		if m.Index() < 0 || m.Index() > groupsend.MaxIndex || m.Count() < 0 || m.Count() > groupsend.MaxCount {
			t.Errorf("%#x: %d, %d", x, m.Index(), m.Count())
		}
		if back := (groupsend.Group{Index: m.Index(), Count: m.Count()}).Imm(); back != m {
			t.Errorf("%#x became %#x", x, uint32(back))
		}
	})
}
