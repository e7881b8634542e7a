package counted

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/counters"
)

// headline says whose counters they are and what has become of the daemon.
func (v *View) headline() string {
	state := v.State
	switch v.Process {
	case "dead":
		state = "its core has died; these are its last counters"
		if v.State == "stopped" {
			state = "stopped"
		}
	case "halted":
		state = "its core is halted (SIGSTOP, or a debugger)"
	case "unknown":
		state += ", as it said last; its process is not to be seen from here"
	}
	if len(v.Stuck) > 0 {
		state += fmt.Sprintf("; agents that hang: %v", v.Stuck)
	}
	return fmt.Sprintf("node %s: %s; rdmad %s, core %d, started %s, configuration %s\n",
		v.Node, state, v.Version, v.Core, v.Started.UTC().Format(time.RFC3339), v.Digest)
}

// us formats a time in microseconds.
func us(f float64) string {
	return time.Duration(f * float64(time.Microsecond)).Round(100 * time.Nanosecond).String()
}

// Print writes the view as tables. Counters that are zero are left out. With an earlier
// view of the same core there is also how much was counted per second since then.
func (v *View) Print(out io.Writer, earlier *View, since time.Duration) error {
	var b strings.Builder
	b.WriteString(v.headline())
	if earlier != nil && (earlier.Core != v.Core || !earlier.Started.Equal(v.Started)) {
		earlier = nil
	}
	for _, t := range []*table.Table{v.agents(), v.lanes(), v.services(), v.counted(earlier, since)} {
		t.Print(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (v *View) agents() *table.Table {
	t := table.New("AGENT", "STATE", "CYCLES", "P50", "P99", "LONGEST")
	for _, a := range v.Agents {
		t.Row(a.Number, a.State, a.Counters["agent_cycles"], us(a.Cycles.P50US), us(a.Cycles.P99US), us(a.Cycles.MaxUS))
	}
	return t
}

func (v *View) lanes() *table.Table {
	t := table.New("LANE", "DOMAIN", "CLASS", "NUMBER", "BUSY", "REQUESTS", "FAILED", "GROUP P50", "MAX", "P50", "P99", "P99.9", "MAX", "WAITED P99")
	for _, l := range v.Lanes {
		name := l.Direction + " " + l.Peer
		if l.Other {
			name = "other"
		}
		t.Row(name, l.Domain, l.Class, l.Number, l.Counters["busy"], l.Counters["requests"], failed(l.Outcomes),
			l.GroupSizes.P50, l.GroupSizes.Max, us(l.Latency.P50US), us(l.Latency.P99US), us(l.Latency.P999US), us(l.Latency.MaxUS), us(l.Queue.P99US))
	}
	return t
}

func (v *View) services() *table.Table {
	t := table.New("SERVICE", "METHOD", "DOMAIN", "REQUESTS", "FAILED", "P50", "P99", "P99.9", "MAX", "WAITED P99")
	for _, s := range v.Services {
		name := s.Service
		if s.Other {
			name = "other"
		}
		t.Row(name, s.Method, s.Domain, s.Counters["requests"], failed(s.Outcomes), us(s.Latency.P50US), us(s.Latency.P99US), us(s.Latency.P999US), us(s.Latency.MaxUS), us(s.Wait.P99US))
	}
	return t
}

// counted is the table of the counters of the node and of its agents together.
func (v *View) counted(earlier *View, since time.Duration) *table.Table {
	now, before := v.sums(), map[string]uint64{}
	head := []string{"COUNTER", "VALUE", "UNIT"}
	if earlier != nil {
		before = earlier.sums()
		head = append(head, "PER SECOND")
	}
	t := table.New(head...)
	for _, i := range append(counters.Infos[counters.NodeCounts](), counters.Infos[counters.AgentCounts]()...) {
		n := now[i.Name]
		if n == 0 {
			continue
		}
		row := []any{i.Name, n, i.Unit}
		if earlier != nil {
			rate := ""
			if !i.Gauge && n >= before[i.Name] {
				rate = fmt.Sprintf("%.0f", float64(n-before[i.Name])/since.Seconds())
			}
			row = append(row, rate)
		}
		t.Row(row...)
	}
	return t
}

// sums are the counters of the node and of its agents together.
func (v *View) sums() map[string]uint64 {
	sums := map[string]uint64{}
	for i := range v.Agents {
		for name, n := range v.Agents[i].Counters {
			sums[name] += n
		}
	}
	for name, n := range v.Counters {
		sums[name] += n
	}
	return sums
}

func failed(outcomes map[string]uint64) (n uint64) {
	for name, k := range outcomes {
		if name != counters.OutcomeName(0) {
			n += k
		}
	}
	return n
}
