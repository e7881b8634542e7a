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
		Draining: true,
		Peers:    []daemon.PeerStatus{{Name: "b", Address: "127.0.0.1:2", State: "down", Error: "refused"}},
		Services: []daemon.ServiceStatus{{Service: "echo", Method: "echo", Node: "b"}, {Service: "own", Method: "m", Node: "a", Workers: 2}},
		Counters: map[string]uint64{"wakes": 3, "refused": 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"node a: draining for 1m1s", "pids 10 (supervisor) 11 (core)", "refused", "PEER", "SERVICE", "wakes    3"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"WORKER  ", "LANE", "refused  0"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q in:\n%s", unwanted, text)
		}
	}
}
