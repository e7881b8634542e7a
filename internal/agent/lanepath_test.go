package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/fabric"
)

type describedEndpoint struct{ fabric.Endpoint }

func (describedEndpoint) Describe() string { return "gid 3 to fe80::2, mtu 1024" }

// A lane that is up says what its connection uses, if the fabric does.
func TestLanePath(t *testing.T) {
	d := &Domain{agent: new(Agent)}
	for id, p := range []*EndpointPair{{Endpoint: describedEndpoint{}}, {Endpoint: struct{ fabric.Endpoint }{}}, nil} {
		l := NewOutLane(d, uint16(id+1), newRing(t), newVault(t), 1)
		l.Pair = p
		d.OutLanes = append(d.OutLanes, l)
	}
	got := d.LaneStatus("default", map[uint16]attach.Lane{1: {}, 2: {}, 3: {}})
	if len(got) != 3 || got[0].Path != (describedEndpoint{}).Describe() || got[1].Path != "" || got[2].Path != "" {
		t.Errorf("%+v", got)
	}
}
