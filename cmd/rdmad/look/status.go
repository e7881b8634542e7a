package look

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/status"
)

// Print writes the state as tables. Tables without rows are left out.
func Print(out io.Writer, s *status.Node) error {
	var b strings.Builder
	writeNode(&b, s)
	refusals := table.New("REFUSED FROM", "REASON", "TIMES", "LAST", "TEXT")
	for _, r := range s.Refusals {
		refusals.Row(r.From, r.Reason, r.Count, table.Seconds(r.AgeS)+" ago", r.Text)
	}
	troubles := table.New("ERROR", "LEVEL", "ABOUT", "TIMES", "FIRST", "LAST", "TEXT")
	for _, e := range s.Errors {
		troubles.Row(e.Code, e.Level, e.Subject, e.Count, ago(e.First), ago(e.Last), e.Text)
	}
	agents := table.New("AGENT", "IDLE", "POLLS", "WAKES", "CPU")
	for _, a := range s.Agents {
		polls, cpu := "-", "any"
		if a.SpinUS > 0 {
			polls = table.Micros(a.SpinUS)
		}
		if a.CPU >= 0 {
			cpu = strconv.Itoa(a.CPU)
		}
		agents.Row(a.Name, a.Idle, polls, a.Wakes, cpu)
	}
	domains := table.New("DOMAIN", "GENERATION", "DAMAGES", "LINGERING", "HELD")
	for _, d := range s.Domains {
		if uint64(d.Generation)+d.Damages+uint64(d.Lingering+d.Held) > 0 {
			domains.Row(d.Name, d.Generation, d.Damages, d.Lingering, d.Held)
		}
	}
	deaths := table.New("DEATHS", "COUNT", "P50", "P99", "MOST")
	for _, d := range []struct {
		what  string
		times status.Delays
	}{{"until certain", s.Deaths.Certain}, {"until own slots free", s.Deaths.Freed}, {"until all slots free", s.Deaths.Settled}} {
		if d.times.Count > 0 {
			deaths.Row(d.what, d.times.Count, table.Micros(d.times.P50US), table.Micros(d.times.P99US), table.Micros(d.times.MaxUS))
		}
	}
	counters := table.New("COUNTER", "VALUE")
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if n := s.Counters[name]; n != 0 {
			counters.Row(name, n)
		}
	}
	for _, t := range []*table.Table{peerRows(s.Peers), troubles, refusals, serviceRows(s.Node, s.Services), workerRows(s.Workers), wrongRows(s.Workers),
		agents, domains, deaths, laneRows(s.Lanes), pathRows(s.Lanes), counters} {
		t.Print(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// listens says where a node listens for peers.
func listens(address string) string {
	if address == "" {
		return "for no peers"
	}
	return "on " + address
}

// ago formats how long ago something was.
func ago(t time.Time) string { return max(0, time.Since(t)).Round(time.Second).String() + " ago" }

// writeNode writes what concerns the node as a whole.
func writeNode(b *strings.Builder, s *status.Node) {
	fmt.Fprintf(b, "node %s: %s, core up %s, rdmad %s, fabric %s, listens %s, pids %d (supervisor) %d (core)\n",
		s.Node, state(s), table.Seconds(s.UptimeS), s.Version, orElse(s.Fabric, "none"), listens(s.Listen), s.PIDs.Supervisor, s.PIDs.Core)
	writeConfig(b, s.Config)
	if d := s.Drain; d != nil {
		fmt.Fprintf(b, "out of service for %s: %s (back with: rdmad drain --undo)\n", table.Seconds(d.SinceS), Progress(d))
	}
	if u := s.Upgrade; u != nil {
		to := ""
		if u.To.Version != "" { // else the program has not said it
			to = " to " + u.To.Version
		}
		fmt.Fprintf(b, "upgrade %d from rdmad %s%s: %s", u.Number, u.From.Version, to, u.Result)
		if u.Reason != "" {
			fmt.Fprintf(b, ", %s", u.Reason)
		}
		fmt.Fprintln(b)
	}
	if s.FabricDetail != "" {
		fmt.Fprintf(b, "fabric %s: %s\n", s.Fabric, s.FabricDetail)
	}
	if s.FallbackReason != "" {
		fmt.Fprintf(b, "WARNING: fabric.provider = %q fell back to %s: %s (for more see: rdmad doctor)\n", s.FabricWanted, s.Fabric, s.FallbackReason)
	}
	if s.TLS != nil {
		data := "not encrypted"
		if s.DataTLS {
			data = "encrypted"
		}
		own := "the files of [tls] cannot be used, so no peer can connect (see: rdmad doctor)"
		if s.TLS.Name != "" {
			own = fmt.Sprintf("own certificate %s, expires %s", s.TLS.Name, table.Date(s.TLS.NotAfter))
		}
		fmt.Fprintf(b, "TLS: required of peers; data %s; %s\n", data, own)
	}
}

// writeConfig writes which configuration is in force, and what of its file is not.
func writeConfig(b *strings.Builder, c *status.Config) {
	if c == nil {
		return // of a daemon that does not tell
	}
	fmt.Fprintf(b, "configuration %s, digest %s\n", orElse(c.Source, "not from a file"), c.Digest)
	r := c.Reload
	if r == nil {
		return
	}
	if len(r.Pending) > 0 {
		var keys []string
		for _, p := range r.Pending {
			keys = append(keys, table.Plain(p.Path))
		}
		fmt.Fprintf(b, "in force after a restart: %s (see: rdmad config diff)\n", strings.Join(keys, ", "))
	}
	if r.Result != status.ReloadDone {
		fmt.Fprintf(b, "WARNING: the last reload, %s, was refused, for: %s\n", ago(r.At), table.Plain(strings.Join(r.Problems, "; ")))
	}
}

// state says in a word how the node is.
func state(s *status.Node) string {
	if s.Drain != nil {
		return "out of service"
	}
	if s.Draining {
		return "draining"
	}
	return "running"
}

// Progress says how far a node that was taken out of service has come.
func Progress(d *status.Drain) string {
	if d.Complete {
		return "drained"
	}
	text := fmt.Sprintf("%d requests to its services are under way", d.Requests)
	if len(d.Peers) > 0 {
		text += ", not finished with it: " + strings.Join(d.Peers, " ")
	}
	return text
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
