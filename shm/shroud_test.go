package shm_test

import (
	"bytes"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"golang.org/x/sys/unix"
)

// What comes late to the addresses of a segment that is gone touches nobody's memory.
func TestShroud(t *testing.T) {
	const size = shm.HeaderSize + 3<<20
	s, err := shm.Create(shm.CreateOptions{Name: "shroud", Kind: shm.KindRegion, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	other := dupOpen(t, s, size)
	late := s.Bytes()
	for i := range late {
		late[i] = 7
	}
	end, err := s.Shroud()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(late, make([]byte, len(late))) {
		t.Error("who reads late sees what was there")
	}
	for i := range late {
		late[i] = 9
	}
	if bytes.IndexByte(other.Bytes(), 9) >= 0 {
		t.Error("who writes late changes what others have")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}

// dupOpen maps a segment once more, as another process does.
func dupOpen(t *testing.T, s *shm.Segment, size int) *shm.Segment {
	t.Helper()
	fd, err := unix.Dup(s.FD())
	if err != nil {
		t.Fatal(err)
	}
	other, err := shm.Open(fd, shm.KindRegion, size)
	if err != nil {
		t.Fatal(err)
	}
	return other
}
