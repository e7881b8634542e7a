package groupsend_test

import (
	"errors"
	"fmt"
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
		m, err := groupsend.MakeImm(c.index, c.count)
		if err != nil || uint32(m) != c.want {
			t.Errorf("MakeImm(%d, %d) is %#x, %v, want %#x", c.index, c.count, uint32(m), err, c.want)
		}
		if g := (groupsend.Group{Index: c.index, Count: c.count}).Imm(); g != m {
			t.Errorf("the group's immediate is %#x", uint32(g))
		}
	}
	for _, c := range [][2]int{{-1, 1}, {1 << 24, 1}, {0, 0}, {0, -1}, {0, 256}, {1 << 62, 1}} {
		if m, err := groupsend.MakeImm(c[0], c[1]); !errors.Is(err, groupsend.ErrImm) || m != 0 {
			t.Errorf("MakeImm(%d, %d): %#x, %v", c[0], c[1], uint32(m), err)
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
		back, err := groupsend.MakeImm(m.Index(), m.Count())
		if control := m.Count() == 0; control != (err != nil) || !control && back != m {
			t.Errorf("%#x became %#x, %v", x, uint32(back), err)
		}
	})
}

func ExampleMakeImm() {
	m, err := groupsend.MakeImm(1000, 3)
	fmt.Println(m.Index(), m.Count(), err)
	_, err = groupsend.MakeImm(1000, 256)
	fmt.Println(err)
	// Output:
	// 1000 3 <nil>
	// groupsend: index or count out of range: index 1000, count 256
}
