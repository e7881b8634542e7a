package look

import (
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/internal/counters"
)

// A lane in the file of counters keeps its number when something comes that has no row.
func TestCountedLanesKeepTheirNumbers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "rdmad.sock")
	file, err := counters.Create(CountersPath(socket), 0o600, counters.Identity{Node: "a", Program: "1"}, counters.Rows{Agents: 1, Lanes: 1, Services: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lane := counters.LaneID{Domain: "d", Peer: "b", Class: "small"}
	file.Lane(lane, 0, 64, 128).Requests = 10
	for range 2 {
		s, err := Counted(CountersPath(socket))
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Lanes) != 1 || s.Lanes[0].ID != 0 || s.Lanes[0].Requests != 10 {
			t.Errorf("lanes %+v", s.Lanes)
		}
		lane.Number++
		file.Lane(lane, 0, 64, 128).Requests = 1
	}
}

// The counters are those of the agents and those of the node: top shows both of a daemon that hangs.
func TestCountedOfNode(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "rdmad.sock")
	file, err := counters.Create(CountersPath(socket), 0o600, counters.Identity{Node: "a", Program: "1"}, counters.Rows{Agents: 1, Lanes: 1, Services: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	file.Node().StruckOut, file.Node().RefusedConnections, file.Agent(0).Counts.Wakes = 2, 3, 4
	s, err := Counted(CountersPath(socket))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint64{"struck_out": 2, "refused_connections": 3, "wakes": 4} {
		if got := s.Counters[name]; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
