package look

import (
	"errors"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/status"
)

// CountersPath returns where the daemon on socket has its file of counters, unless its
// configuration says otherwise.
func CountersPath(socket string) string {
	return strings.TrimSuffix(attach.SocketPath(socket), ".sock") + ".counters"
}

// Counted returns what the file of counters at path says of its daemon, as far as it
// goes: no peers and no workers are in it, and processes of services are not known. The
// daemon is not asked.
func Counted(path string) (s *status.Node, err error) {
	r, err := counters.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	c, err := r.Snapshot()
	if err != nil {
		return nil, err
	}
	sums := c.Sum()
	counters.AddTo(sums, &c.Counts)
	s = &status.Node{
		Node: c.Node, Version: c.Program, Incarnation: c.Incarnation, UptimeS: time.Since(c.Started).Seconds(),
		PIDs: status.PIDs{Supervisor: c.Supervisor, Core: c.Core}, Fabric: "core " + c.Process().String(), Draining: c.State == counters.Draining, Counters: sums,
	}
	for i := range c.Lanes {
		l := &c.Lanes[i]
		if l.Other {
			continue // it is no lane, and may come before those that are at any time
		}
		s.Lanes = append(s.Lanes, status.Lane{
			ID: uint16(len(s.Lanes)), Domain: l.Domain, Peer: l.Peer, Class: l.Class, Number: l.Number, Direction: l.Direction.String(), State: "-", Slots: l.Slots, SlotSize: l.SlotSize,
			Busy: int(l.Busy), Requests: l.Requests, Groups: l.Groups, LaneCounted: status.CountedOfLane(&l.Lane),
		})
	}
	for i := range c.Services {
		v := &c.Services[i]
		if !v.Other {
			s.Services = append(s.Services, status.Service{Domain: v.Domain, Node: c.Node, Service: v.ServiceID.Service, Method: v.Method, Counted: status.CountedOfService(&v.Service)})
		}
	}
	return s, nil
}
