package test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// Descriptors that a worker sends are closed, and each message with some is an offence, where the
// kernel does not refuse them: it does for sockets of those who connect when the node has the
// socket, and not for one who has connected to the socket of a socket unit before.
func TestGiftsOfEarlyWorker(t *testing.T) {
	c := newCluster(t, sandbox.Settings{Extra: "[log]\nlevel = \"error\"\n"}, "a")
	s, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: c.socket("a"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	unit, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	defer unit.Close()
	early, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.socket("a"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	l := newListener(t, c.dir)
	cmd := l.service(t, filepath.Join(c.dir, "a.toml"), []*os.File{unit})
	eventually(t, "the node is ready", func() bool { return l.count("READY=1") == 1 })
	hello, err := json.Marshal(&attach.Message{Type: attach.TypeHello, Hello: &attach.Hello{
		Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleClient, Name: "generous",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := shm.SendFDs(early, hello); err != nil {
		t.Fatal(err)
	}
	const gifts = 5
	for range gifts {
		if err := shm.SendFDs(early, []byte(`{"type":"taken","seq":1}`), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "each is an offence", func() bool {
		status, err := askStatus(t, c.socket("a"))
		if err != nil {
			return false
		}
		for _, w := range status.Workers {
			if w.Name == "generous" {
				return w.Offences == gifts
			}
		}
		return false
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
