package daemon

import (
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/peerauth"
)

// The first domain that lists the user of a process admits it, else the first that lists
// its primary group, else the first that lists one of its other groups, else none.
func TestAdmit(t *testing.T) {
	c := &conductor{}
	one, two := &domain{name: "one"}, &domain{name: "two"}
	one.policy.Store(&config.Domain{UIDs: []uint32{1}, GIDs: []uint32{10, 20}})
	two.policy.Store(&config.Domain{UIDs: []uint32{2}, GIDs: []uint32{30}})
	c.domains.Store(&[]*domain{one, two})
	for _, test := range []struct {
		uid, gid uint32
		others   []uint32
		want     string
	}{
		{1, 99, nil, "one"}, {2, 99, nil, "two"}, {2, 10, nil, "two"}, {3, 20, nil, "one"}, {3, 30, nil, "two"}, {3, 99, nil, ""}, {10, 1, nil, ""},
		{3, 99, []uint32{98, 30}, "two"}, {3, 99, []uint32{30, 20}, "one"}, {3, 30, []uint32{10}, "two"}, {2, 99, []uint32{10}, "two"}, {3, 99, []uint32{1, 2}, ""},
	} {
		got := ""
		if d := c.admit(test.uid, test.gid, test.others); d != nil {
			got = d.name
		}
		if got != test.want {
			t.Errorf("user %d of group %d and %v is admitted to %q, want %q", test.uid, test.gid, test.others, got, test.want)
		}
	}
}

// A node that connects to itself, or to another of its name, is told so.
func TestPeerOfTheSameName(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	for node, want := range map[string]string{"a": "", "b": `called "b", too`, "c": `node "c" is not a [[peer]] of node b`} {
		switch err := r.admitPeer(node, &peerauth.Channel{}); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", node, err, want)
		}
	}
}
