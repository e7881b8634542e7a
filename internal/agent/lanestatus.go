package agent

import (
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/status"
)

// traffic counts the requests of a lane, and their groups.
type traffic struct{ requests, groups uint64 }

// LaneStatus describes the domain's lanes, on the agent's thread.
func (d *Domain) LaneStatus(domain string, names map[uint16]attach.Lane) []status.Lane {
	var ls []status.Lane
	add := func(id uint16, direction string, up bool, end *LaneEndpoint, busy int, moved traffic, row *counters.Lane) {
		n, ok := names[id]
		if !ok {
			return // made after the names were taken
		}
		state, path := "down", ""
		if up {
			state = "up"
		}
		if end != nil {
			path = fabric.Describe(end.Endpoint)
		}
		var counted status.LaneCounted
		shared := row == d.agent.tally.OtherLane // what is in it is not this lane's
		if !shared {
			counted = status.CountedOfLane(row)
		}
		ls = append(ls, status.Lane{ID: id, Domain: domain, Peer: n.Peer, Class: n.Class, Number: n.Number, Direction: direction, State: state,
			Slots: n.Geometry.Slots, SlotSize: n.Geometry.SlotSize, Busy: busy, Requests: moved.requests, Groups: moved.groups, Path: path, Uncounted: shared, LaneCounted: counted})
	}
	for _, l := range d.OutLanes {
		before := len(ls)
		if l.Local != nil {
			add(l.id, "local", true, nil, l.busy, l.moved, l.Row)
		} else {
			add(l.id, "out", l.End != nil, l.End, l.busy, l.moved, l.Row)
		}
		for i := before; i < len(ls); i++ {
			ls[i].Users, ls[i].Share = l.Sharing.Users(), l.Sharing.Share()
			if l.Sharing.Quota < l.geo.Slots {
				ls[i].Quota = l.Sharing.Quota
			}
		}
	}
	for _, l := range d.InLanes {
		if l.Local == nil {
			add(l.id, "in", l.End != nil, l.End, l.Busy, l.moved, l.Row)
		}
	}
	return ls
}

// Flight is what a worker has in flight.
type Flight struct {
	Slots, Bytes int
	OverLimit    uint64
	Offences     uint64
	// Spilled are answers, SpilledBytes their size.
	Spilled, SpilledBytes uint64
}

// Flights enters the domain's workers into m, on the agent's thread.
func (d *Domain) Flights(m map[*Worker]Flight) {
	for _, w := range d.Workers {
		if w == nil {
			continue
		}
		f := Flight{Offences: w.offences.Total, Bytes: w.bytes, OverLimit: w.overLimit, Spilled: w.spilledAnswers, SpilledBytes: w.spilledBytes}
		for _, l := range d.OutLanes {
			f.Slots += l.Sharing.Taken(w.ID)
		}
		m[w] = f
	}
}
