package client_test

import (
	"net"
	"slices"
	"testing"
	"time"

	protocol "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// vandal is an attached process that can break any lane of its domain, by sending a
// request twice: the peer takes the lane down.
type vandal struct {
	t     *testing.T
	id    int
	bells *slots.Bells
	bell  *shm.Bell
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
		if v.bell != nil {
			_ = v.bell.Close()
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
			v.id = m.Welcome.ID
			v.bells = slots.NewBells(open(fds[0], shm.KindDomain, slots.DomainSegmentSize).Bytes())
			open(fds[1], shm.KindWorker, slots.WorkerSegmentSize)
			v.bell = shm.OpenBell(fds[2])
			shm.CloseFDs(fds[3:]) // pages: it waits for nothing
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

// breakLane breaks lane number n of a class.
func (v *vandal) breakLane(class string, n int) {
	v.t.Helper()
	at := slices.IndexFunc(v.route.Lanes, func(id uint16) bool { return v.lanes[id].Class == class && v.lanes[id].Number == n })
	id := v.route.Lanes[at]
	mem := v.segs[id].Bytes()
	ring, err := slots.NewRing(mem, v.lanes[id].Geometry)
	if err != nil {
		v.t.Fatal(err)
	}
	send := func(u slots.Run) bool {
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindOneWay, Method: v.route.Method}
		h.Encode(ring.Header(u))
		if !ring.Publish(u, v.id) {
			return false
		}
		// The slot may lie behind the cursor.
		shm.Uint64At(mem, shm.HeaderSize+0x200).Store(1)
		v.bells.MarkLane(id)
		v.bell.Ring()
		return true
	}
	daemontest.Eventually(v.t, "the lane breaks", func() error {
		u, err := ring.Claim(v.id, 1)
		if err != nil {
			return err
		}
		send(u)
		free := slots.MakeWord(slots.Free, 0, 0, u.Ticket)
		for end := time.Now().Add(time.Second); ring.Word(u.Index) != free && time.Now().Before(end); {
			time.Sleep(time.Millisecond) // between two looks
		}
		word := shm.Uint64At(mem, shm.HeaderSize+0x1000+8*u.Index)
		if !word.CompareAndSwap(uint64(free), uint64(slots.MakeWord(slots.Claim, 1, v.id, u.Ticket))) || !send(u) {
			return slots.ErrFull // another process has the slot: once more
		}
		return nil
	})
}
