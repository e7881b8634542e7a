package shm_test

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// The kernel tells the groups of whoever made a socket, and nothing of what is none.
func TestPeerGroups(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shm.CloseFDs(pair[:])
	got, err := shm.PeerGroups(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, gid := range own {
		if !slices.Contains(got, uint32(gid)) {
			t.Errorf("group %d is missing in %v", gid, got)
		}
	}
	if len(got) != len(own) {
		t.Errorf("groups %v, want %v", got, own)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if groups, err := shm.PeerGroups(int(null.Fd())); err == nil {
		t.Errorf("no socket has groups %v", groups)
	}
}
