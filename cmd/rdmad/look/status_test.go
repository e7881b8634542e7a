package look

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/status"
)

func TestPrintStatus(t *testing.T) {
	var out strings.Builder
	err := Print(&out, &status.Node{
		Node: "a", Version: "9.9", UptimeS: 61.2, PIDs: status.PIDs{Supervisor: 10, Core: 11}, Listen: "127.0.0.1:1", Fabric: "tcp",
		FabricWanted: "auto", FallbackReason: "port 1 of mlx5_0 is DOWN", FabricDetail: "advertised as 127.0.0.1", Draining: true,
		Peers:    []status.Peer{{Name: "b", Address: "127.0.0.1:2", State: "down", Error: "refused"}},
		Services: []status.Service{{Service: "echo", Method: "echo", Node: "b"}, {Service: "own", Method: "m", Node: "a", Workers: 2}},
		Counters: map[string]uint64{"wakes": 3, "refused": 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"node a: draining, core up 1m1s", "pids 10 (supervisor) 11 (core)", "refused", "PEER", "SERVICE", "wakes    3",
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

// Which configuration is in force, what of its file is not, and why.
func TestPrintConfig(t *testing.T) {
	var out strings.Builder
	s := &status.Node{Node: "a", Config: &status.Config{Source: "/etc/rdmad/config.toml", Digest: "abc123"}}
	if err := Print(&out, s); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "configuration /etc/rdmad/config.toml, digest abc123\n") || strings.Contains(text, "restart") {
		t.Error(text)
	}
	out.Reset()
	s.Config.Reload = &status.Reload{Result: status.ReloadRefused, At: time.Now(), Problems: []string{"log.level: no"},
		Pending: []config.Change{{Path: "agent.count"}, {Path: "node.name"}}}
	if err := Print(&out, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in force after a restart: agent.count, node.name (see: rdmad config diff)\n", "WARNING: the last reload, ", " was refused, for: log.level: no\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// How agents wait, and what they wake others with.
func TestPrintAgents(t *testing.T) {
	var out strings.Builder
	err := Print(&out, &status.Node{Node: "a", Agents: []status.Agent{
		{Name: "agent0", Idle: "adaptive", SpinUS: 200, Wakes: "io_uring", CPU: -1}, {Name: "agent1", Idle: "event", Wakes: "futex", CPU: 3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !regexp.MustCompile(`AGENT +IDLE +POLLS +WAKES +CPU\nagent0 +adaptive +200µs +io_uring +any\nagent1 +event +- +futex +3\n`).MatchString(text) {
		t.Error(text)
	}
}

// What the fabric says of lanes, and no warning without a reason.
func TestPrintPaths(t *testing.T) {
	var out strings.Builder
	err := Print(&out, &status.Node{Node: "a", Fabric: "verbs", FabricWanted: "auto", Lanes: []status.Lane{
		{ID: 4, Direction: "out", Peer: "b", Class: "small", Number: 2, State: "up", Requests: 77, Path: "gid 3 to ::ffff:192.0.2.2"},
		{ID: 5, Direction: "local"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "PATH\n4     gid 3 to") || strings.Contains(text, "WARNING") || strings.Count(text, "\n5 ") != 1 ||
		!regexp.MustCompile(`CLASS +NUMBER +STATE .* REQUESTS .*\n4 +out +b +- +small +2 +up .* 77 .*\n`).MatchString(text) {
		t.Error(text)
	}
}

// What protects a link, and who was turned away.
func TestPrintTLS(t *testing.T) {
	var out strings.Builder
	until := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	err := Print(&out, &status.Node{
		Node: "a", Fabric: "tcp", TLS: &status.Certificate{Name: "rdmad://node/a", NotAfter: until},
		Peers: []status.Peer{
			{Name: "b", Address: "b:1", State: "connected", TLS: &status.Channel{Version: "TLS 1.3", Peer: status.Certificate{Name: "rdmad://node/b", NotAfter: until}}},
			{Name: "c", Address: "c:1", State: "connected"},
			{Name: "d", Address: "d:1", State: "down", Error: "why"},
		},
		Refusals: []status.Refusal{{From: "192.0.2.9", Reason: "no-tls", Text: "without TLS", Count: 7, AgeS: 61}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`TLS: required of peers; data not encrypted; own certificate rdmad://node/a, expires 2031-05-06\n`,
		`b +b:1 +connected +0s +0 +TLS 1\.3 +rdmad://node/b +2031-05-06 +-\n`, `c +c:1 +connected +0s +0 +no +- +- +-\n`, `d +d:1 +down +0s +0 +- +- +- +why\n`,
		`192\.0\.2\.9 +no-tls +7 +1m1s ago +without TLS\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// What workers have done wrong, or have not taken, is shown where there is something of it,
// and so are domains that were damaged and the deaths of workers.
func TestPrintWrongs(t *testing.T) {
	for _, c := range []struct {
		status status.Node
		want   string
	}{
		{status.Node{Workers: []status.Worker{{ID: 1, Name: "good"}}, Domains: []status.Domain{{Name: "d"}}}, ""},
		{status.Node{Workers: []status.Worker{{ID: 7, Name: "bad", Domain: "d", Offences: 3}}}, `(?m)^7 +bad +d +3 +0 +0 +0$`},
		{status.Node{Workers: []status.Worker{{ID: 8, Name: "slow", Domain: "d", SpilledAnswers: 5, SpilledBytes: 640, SpillUnread: 64}}}, `(?m)^8 +slow +d +0 +5 +640 +64$`},
		{status.Node{Domains: []status.Domain{{Name: "d", Generation: 1, Damages: 300, Held: 1}}}, `(?m)^d +1 +300 +0 +1$`},
		{status.Node{Deaths: status.Deaths{Freed: status.Delays{Count: 2, P50US: 320, P99US: 1500, MaxUS: 1500}}}, `(?m)^until own slots free +2 +320µs +1.5ms +1.5ms$`},
	} {
		var out strings.Builder
		if err := Print(&out, &c.status); err != nil {
			t.Fatal(err)
		}
		for _, head := range []string{"OFFENCES", "DAMAGES", "DEATHS"} {
			if c.want == "" && strings.Contains(out.String(), head) {
				t.Errorf("%s in:\n%s", head, out.String())
			}
		}
		if !regexp.MustCompile(c.want).MatchString(out.String()) {
			t.Errorf("no %s in:\n%s", c.want, out.String())
		}
	}
}
