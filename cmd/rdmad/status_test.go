package main

import (
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/daemon"
)

func TestPrintStatus(t *testing.T) {
	var out strings.Builder
	err := printStatus(&out, &daemon.Status{
		Node: "a", Version: "9.9", UptimeS: 61.2, PIDs: daemon.PIDs{Supervisor: 10, Core: 11}, Listen: "127.0.0.1:1", Fabric: "tcp",
		FabricWanted: "auto", FallbackReason: "port 1 of mlx5_0 is DOWN", FabricDetail: "advertised as 127.0.0.1", Draining: true,
		Peers:    []daemon.PeerStatus{{Name: "b", Address: "127.0.0.1:2", State: "down", Error: "refused"}},
		Services: []daemon.ServiceStatus{{Service: "echo", Method: "echo", Node: "b"}, {Service: "own", Method: "m", Node: "a", Workers: 2}},
		Counters: map[string]uint64{"wakes": 3, "refused": 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"node a: draining for 1m1s", "pids 10 (supervisor) 11 (core)", "refused", "PEER", "SERVICE", "wakes    3",
		"fabric tcp: advertised as 127.0.0.1", "WARNING: ", "port 1 of mlx5_0 is DOWN", "rdmad doctor"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"WORKER  ", "LANE", "PATH", "refused  0"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q in:\n%s", unwanted, text)
		}
	}
}

// What the fabric says of lanes, and no warning without a reason.
func TestPrintPaths(t *testing.T) {
	var out strings.Builder
	err := printStatus(&out, &daemon.Status{Node: "a", Fabric: "verbs", FabricWanted: "auto", Lanes: []daemon.LaneStatus{
		{ID: 4, Direction: "out", Peer: "b", Path: "gid 3 to ::ffff:192.0.2.2"}, {ID: 5, Direction: "local"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "PATH\n4     gid 3 to") || strings.Contains(text, "WARNING") || strings.Count(text, "\n5 ") != 1 {
		t.Error(text)
	}
}
