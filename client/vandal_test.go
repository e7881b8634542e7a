package client_test

import (
	"net"
	"testing"

	protocol "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/shm"
)

// vandal is an attached process that maps the lanes of its domain to a method, and can write to all that workers can.
type vandal struct {
	t     *testing.T
	route *protocol.Route
	lanes map[uint16]protocol.Lane
	segs  map[uint16]*shm.Segment
}

func newVandal(t *testing.T, n *daemontest.Node, node, service, method string) *vandal {
	t.Helper()
	sock, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: n.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	conn := protocol.NewConn(sock)
	v := &vandal{t: t, lanes: map[uint16]protocol.Lane{}, segs: map[uint16]*shm.Segment{}}
	var mapped []*shm.Segment
	t.Cleanup(func() {
		_ = conn.Close()
		for _, s := range mapped {
			_ = s.Close()
		}
	})
	open := func(fd int, kind shm.Kind, size int) *shm.Segment {
		s, err := shm.Open(fd, kind, size)
		if err != nil {
			t.Fatal(err)
		}
		mapped = append(mapped, s)
		return s
	}
	say := func(m *protocol.Message) {
		if err := conn.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	say(&protocol.Message{Type: protocol.TypeHello, Hello: &protocol.Hello{Protocol: protocol.Protocol, ABI: shm.ABIVersion, Role: protocol.RoleClient, Name: "vandal"}})
	say(&protocol.Message{Type: protocol.TypeResolve, Seq: 1, Target: &protocol.Target{Node: node, Service: service, Method: method}})
	for v.route == nil {
		m, fds, err := conn.Recv()
		if err != nil {
			t.Fatal(err)
		}
		switch m.Type {
		case protocol.TypeWelcome:
			shm.CloseFDs(fds) // it neither sends nor waits
		case protocol.TypeLane:
			v.lanes[m.Lane.ID], v.segs[m.Lane.ID] = *m.Lane, open(fds[0], shm.KindLane, m.Lane.Geometry.SegmentSize())
		case protocol.TypeResolved:
			v.route = m.Route
		default:
			t.Fatalf("%+v", m)
		}
	}
	return v
}
