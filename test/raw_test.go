package test

import (
	"fmt"
	"net"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// raw is a client without the library: its socket and its memory, to do with as it
// likes.
type raw struct {
	sock  *net.UnixConn
	id    int
	segs  []*shm.Segment // of the domain, of the worker, then of the lanes
	rings []*slots.Ring
	bell  *shm.Bell
}

// rawAttach attaches and asks for the way to a method.
func rawAttach(args *roleArgs) (*raw, error) {
	sock, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: args.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	conn, w := attach.NewConn(sock), &raw{sock: sock}
	for _, m := range []*attach.Message{
		{Type: attach.TypeHello, Hello: &attach.Hello{Protocol: attach.Protocol, ABI: shm.ABIVersion, Role: attach.RoleClient, Name: "raw"}},
		{Type: attach.TypeResolve, Seq: 1, Target: &attach.Target{Node: args.Node, Service: args.Service, Method: args.Method}},
	} {
		if err := conn.Send(m); err != nil {
			return nil, err
		}
	}
	for {
		m, fds, err := conn.Recv()
		if err != nil {
			return nil, err
		}
		switch m.Type {
		case attach.TypeWelcome:
			w.id = m.Welcome.ID
			for k, kind := range []shm.Kind{shm.KindDomain, shm.KindWorker} {
				size := []int{slots.DomainSegmentSize, slots.WorkerSegmentSize}[k]
				if _, err := w.open(fds[k], kind, size); err != nil {
					return nil, err
				}
			}
			w.bell = shm.OpenBell(fds[2])
			shm.CloseFDs(fds[3:]) // pages: it waits for nothing
		case attach.TypeLane:
			seg, err := w.open(fds[0], shm.KindLane, m.Lane.Geometry.SegmentSize())
			if err != nil {
				return nil, err
			}
			ring, err := slots.NewRing(seg.Bytes(), m.Lane.Geometry)
			if err != nil {
				return nil, err
			}
			w.rings = append(w.rings, ring)
		case attach.TypeResolved:
			return w, nil
		case attach.TypeFail:
			w.close()
			return nil, m.Fail.Err()
		default:
			return nil, fmt.Errorf("got %+v", m)
		}
	}
}

func (w *raw) open(fd int, kind shm.Kind, size int) (*shm.Segment, error) {
	seg, err := shm.Open(fd, kind, size)
	if err == nil {
		w.segs = append(w.segs, seg)
	}
	return seg, err
}

// held is how many slots a worker holds in the lanes.
func (w *raw) held(id int) (n int) {
	for _, r := range w.rings {
		n += r.Held(id)
	}
	return n
}

// close ends the attachment without a word.
func (w *raw) close() {
	_ = w.sock.Close()
	for _, s := range w.segs {
		_ = s.Close()
	}
	if w.bell != nil {
		_ = w.bell.Close()
	}
}
