package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/status"
)

type describedEndpoint struct{ fabric.Endpoint }

func (describedEndpoint) Describe() string { return "gid 3 to fe80::2, mtu 1024" }

// A lane that is up says what its connection uses, if the fabric does.
func TestLanePath(t *testing.T) {
	d := &Domain{agent: &Agent{tally: counters.NewAgent()}}
	for id, p := range []*LaneEndpoint{{Endpoint: describedEndpoint{}}, {Endpoint: struct{ fabric.Endpoint }{}}, nil} {
		l := NewOutLane(d, uint16(id+1), newRing(t), newVault(t), 1)
		l.End = p
		d.OutLanes = append(d.OutLanes, l)
	}
	got := d.LaneStatus("default", map[uint16]attach.Lane{1: {}, 2: {}, 3: {}})
	if len(got) != 3 || got[0].Path != (describedEndpoint{}).Describe() || got[1].Path != "" || got[2].Path != "" {
		t.Errorf("%+v", got)
	}
}

// Lanes and methods that have no counters of their own do not show those of all others like them.
func TestStatusWithoutCountersOfItsOwn(t *testing.T) {
	tally := counters.NewAgent()
	d := &Domain{agent: &Agent{tally: tally}}
	own, other := NewOutLane(d, 1, newRing(t), newVault(t), 1), NewOutLane(d, 2, newRing(t), newVault(t), 1)
	other.Row = tally.OtherLane
	own.Row.Answers, other.Row.Answers = 3, 1000
	d.OutLanes = []*OutLane{own, other}
	got := d.LaneStatus("default", map[uint16]attach.Lane{1: {}, 2: {}})
	if len(got) != 2 || got[0].Answers != 3 || got[0].Uncounted || got[1].Answers != 0 || !got[1].Uncounted {
		t.Errorf("%+v", got)
	}
	d.methods = []*Method{{id: 1, row: new(counters.Service)}, {id: 2, row: tally.OtherService}, nil}
	services := map[uint32]*status.ServiceCounted{}
	if d.ServicesCounted(services); services[1] == nil || len(services) != 1 {
		t.Errorf("counted of methods: %v", services)
	}
}
