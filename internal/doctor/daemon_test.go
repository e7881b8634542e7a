package doctor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/status"
)

func TestDaemon(t *testing.T) {
	m := healthy(t)
	m.expect(t, "daemon", OK, "none runs at /run/rdmad/s")
	m.put("run/rdmad/s", "")
	m.expect(t, "daemon", Warn, "killed", "rdmad run -c")
	m.SocketNamed = true
	m.expect(t, "daemon", Fail, "not running", "rdmad run -c")
	m.DaemonErr = fmt.Errorf("socket: %w", attach.ErrPermission)
	m.expect(t, "daemon", Warn, "permission denied", "[[domain]]")
	m.running().Version = "0.9"
	m.expect(t, "daemon", Warn, "version 0.9", "this rdmad is 1.0", "restart")
	m.running().Node = "b"
	m.expect(t, "daemon", Warn, "node b", "configures node a", "--socket")
	m.running()
	m.expect(t, "daemon", OK, "node a")
}

// A supervisor that is halted is told, and no other process taken for it.
func TestSupervisorHalted(t *testing.T) {
	m := healthy(t)
	m.running()
	m.put("proc/77/stat", "77 (rd) T 1 (x) S 76 77 0\n")
	for state, level := range map[string]Level{"S": OK, "R": OK, "T": Fail, "t": Fail} {
		m.put("proc/76/stat", "76 (rdmad) "+state+" 1 76 76\n")
		words := []string{"node a runs at"}
		if level == Fail {
			words = append(words, "supervisor (pid 76) is halted", "kill -CONT 76")
		}
		m.expect(t, "daemon", level, words...)
	}
	m.put("proc/77/stat", "77 (rdmad) S 1 77 0\n")
	m.put("proc/76/stat", "76 (other) T 1 76 76\n")
	m.expect(t, "daemon", OK, "node a runs at")
}

func TestFabric(t *testing.T) {
	m := healthy(t)
	s := m.running()
	m.expect(t, "fabric", OK, "uses verbs, wanted is verbs: mlx5_0 port 1\n")
	s.FabricDetail = ""
	m.expect(t, "fabric", OK, "uses verbs, wanted is verbs\n")
	m.Config.Fabric.Provider = "tcp"
	m.expect(t, "fabric", Warn, `started with fabric.provider = "verbs"`, `test.toml has "tcp"`, "restart")
	m.Config.Fabric.Provider = "verbs"
	m.InForce, m.NextConfig = true, parse(t, twoNodes)
	m.expect(t, "fabric", Warn, `started with fabric.provider = "verbs"`, `its file has "tcp" now`, "restart")
	m.NextConfig = nil
	m.expect(t, "fabric", OK, "wanted is verbs")
	m.Config.Fabric.Provider = "auto"
	s.Fabric, s.FabricWanted, s.FallbackReason = "tcp", "auto", "port 1 of mlx5_0 is DOWN"
	m.expect(t, "fabric", Warn, `"auto"`, "fell back to tcp: port 1 of mlx5_0 is DOWN")
	s.Fabric = ""
	m.expect(t, "fabric", OK, "no peers")
}

func TestPeers(t *testing.T) {
	m := healthy(t)
	refused := func(context.Context, string) error { return errors.New("connection refused") }
	// Without a daemon only the one that is asked about is tried.
	m.Peer = "b"
	m.expect(t, "peer address", OK, "192.0.2.2:7471")
	m.Dial = refused
	m.expect(t, "peer address", Fail, "192.0.2.2:7471", "refused", "node.listen")
	m.Peer = "c"
	m.expect(t, "peer", Fail, `"c" is not a [[peer]]; known: b`)
	m.Config.Peers = nil
	m.expect(t, "peer", Fail, "known: none")

	m = healthy(t)
	p := &m.running().Peers[0]
	m.expect(t, "peer", OK, "connected for 3s", "1 method")
	p.State = "draining"
	m.expect(t, "peer", Warn, "draining")
	p.State = "down"
	m.expect(t, "peer", Warn, "has not answered yet", "rdmad doctor --peer b")
	p.Error = "no route to host"
	m.Peer, m.Dial = "b", refused
	m.expect(t, "peer", Fail, "no route to host")
	m.expect(t, "peer address", Fail, "refused")
	m.Peer = "c"
	m.expect(t, "peer", Fail, "known: b")
}

func TestPaths(t *testing.T) {
	m := healthy(t)
	s := m.running()
	m.Peer = "b"
	m.expect(t, "path", OK, "no lane to b is open yet")
	s.Errors = []event.Entry{{Code: event.LaneNotOpened, Subject: "peer c"}, {Code: event.LaneNotOpened, Subject: "peer b", Text: "node b refuses"}}
	m.expect(t, "path", Fail, "node b refuses", "[[class]]")
	up := func(peer, path string) status.Lane {
		return status.Lane{Peer: peer, State: "up", Path: path}
	}
	s.Lanes = []status.Lane{up("b", ""), {Peer: "b", State: "down", Path: "old"}, up("a", "local")}
	m.expect(t, "path", OK, "1 lane by verbs to b")
	s.Lanes = append(s.Lanes, up("b", "mtu 1024"), up("b", "mtu 4096"), up("b", "mtu 1024"))
	m.expect(t, "path", OK, "2 lanes to b: mtu 1024", "1 lane to b: mtu 4096")
}

// What only a fabric needs is no failure where there is none: the daemon starts without.
func TestNoFabricWithoutPeers(t *testing.T) {
	m := healthy(t)
	m.Config.Peers, m.Config.Fabric.Provider, m.Built = nil, "verbs", false
	m.expect(t, "provider", Warn, "this build has no provider verbs")
	m.Config.Fabric.Provider = "libfabric"
	if !libfabric.Built {
		m.expect(t, "provider", Warn, "which this build does not have")
	}
}
