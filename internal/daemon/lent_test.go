package daemon_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/shm"
)

// A process that asks again and again for what does not fit a message, and keeps what it gets, has no more of the daemon's
// memory than a few answers.
func TestStatusIsLent(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	sock, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: a.Socket, Net: "unixpacket"})
	check(t, err)
	conn := attach.NewConn(sock)
	defer conn.Close()
	var seq uint64
	ask := func(m *attach.Message) (*attach.Message, []int) {
		t.Helper()
		seq++
		m.Seq = seq
		check(t, conn.Send(m))
		for {
			got, fds, err := conn.Recv()
			check(t, err)
			if got.Fail != nil {
				t.Fatal(got.Fail.Err())
			}
			if got.Seq == seq {
				return got, fds
			}
			shm.CloseFDs(fds)
		}
	}
	_, fds := ask(&attach.Message{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleService}})
	shm.CloseFDs(fds)
	for part := range 6 {
		var methods []attach.Method
		for k := range 250 {
			methods = append(methods, attach.Method{Service: strings.Repeat("s", 60), Method: fmt.Sprintf("%s-%d-%d", strings.Repeat("m", 50), part, k)})
		}
		_, fds := ask(&attach.Message{Type: attach.TypeRegister, Methods: methods})
		shm.CloseFDs(fds)
	}
	var kept []int
	defer func() { shm.CloseFDs(kept) }()
	const asked = 20
	for range asked {
		m, fds := ask(&attach.Message{Type: attach.TypeStatus})
		if len(fds) != 1 {
			t.Fatalf("%d descriptors, and %d bytes in the message", len(fds), len(m.StatusJSON))
		}
		kept = append(kept, fds[0])
	}
	held := 0
	for _, fd := range kept {
		var st unix.Stat_t
		check(t, unix.Fstat(fd, &st))
		if st.Blocks > 0 {
			held++
		}
	}
	if held == 0 || held > 4 {
		t.Errorf("%d of %d answers have memory, want 1 to 4", held, asked)
	}
	check(t, conn.Close())
	daemontest.Eventually(t, "the memory is given back", func() error {
		for k, fd := range kept {
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil || st.Blocks > 0 {
				return fmt.Errorf("answer %d: %d blocks, %v", k, st.Blocks, err)
			}
		}
		return nil
	})
}
