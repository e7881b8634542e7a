package client_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/client"
	proto "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// A daemon may end a session before Attach has returned it.
func TestAttachToDaemonThatEnds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	segment := func(kind shm.Kind, size int) *shm.Segment {
		s, err := shm.Create(shm.CreateOptions{Name: "test", Kind: kind, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	domain, worker := segment(shm.KindDomain, slots.DomainSegmentSize), segment(shm.KindWorker, slots.WorkerSegmentSize)
	defer domain.Close()
	defer worker.Close()
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	for range 100 {
		daemon := make(chan error, 1)
		go func() {
			sock, err := l.AcceptUnix()
			if err != nil {
				daemon <- err
				return
			}
			c := proto.NewConn(sock)
			defer c.Close()
			_, _, err = c.Recv()
			if err == nil {
				err = c.Send(&proto.Message{Type: proto.TypeWelcome, Welcome: &proto.Welcome{ABI: shm.ABIVersion, Node: "n", Domain: "d", ID: 1}}, domain.FD(), worker.FD(), bell.FD())
			}
			if err == nil {
				err = c.Send(&proto.Message{Type: proto.TypeGoodbye, Reason: "stopping"})
			}
			daemon <- err
		}()
		c, err := client.Attach(t.Context(), socket)
		if err := <-daemon; err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
