package daemon_test

import (
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/fabric"
)

// A node takes as many lanes of a class from a peer as its limit says, whatever its own
// configuration, and tells a peer that wants more why not.
func TestPeerWithTooManyLanes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	check(t, b.Halt())
	p := pose(t, a)
	cq, pd, mr := laneMemory(t)
	var ends []fabric.Endpoint
	defer func() {
		for _, ep := range ends {
			check(t, ep.Close())
		}
	}()
	open := func(seq, number int) {
		ep, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, SendDepth: 1, RecvDepth: 1})
		check(t, err)
		ends = append(ends, ep)
		p.send(frame{"type": "open", "seq": seq, "lane": frame{
			"domain": "default", "class": "small", "number": number, "geometry": frame{"slot_size": 128, "slots": 8192, "max_run": 64},
			"address": ep.Address(), "key": mr.Remote(),
		}})
	}
	open(1, 7)
	if m := p.receive("accept"); m["seq"] != 1.0 {
		t.Errorf("number 7: %v", m)
	}
	for i, number := range []int{8, 1 << 40, -1} {
		seq := 2 + i
		open(seq, number)
		m := p.receive("refuse")
		if reason, ok := m["reason"].(string); !ok || m["seq"] != float64(seq) || !strings.Contains(reason, "at most 8 lanes") {
			t.Errorf("number %d: %v", number, m)
		}
	}
	st, err := a.Status(t.Context())
	check(t, err)
	for _, l := range st.Lanes {
		if l.Direction == "in" && l.Number != 7 {
			t.Errorf("lane %+v", l)
		}
	}
}
