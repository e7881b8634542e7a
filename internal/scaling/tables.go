package scaling

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/config"
)

// Tables returns the tables of docs/scaling.md for a configuration, by name, as Markdown.
func Tables(c *config.Config) map[string]string {
	return map[string]string{"lanes": lanesTable(c), "nodes": nodesTable(c), "fleet": fleetTable(c)}
}

func lanesTable(c *config.Config) string {
	var b strings.Builder
	b.WriteString("| one end of a lane of class | ring | of it pinned | vault | private | together |\n|---|---|---|---|---|---|\n")
	for _, class := range c.Classes {
		l := LaneOf(class)
		fmt.Fprintf(&b, "| `%s`: %d slots of %d B | %s | %s | %s | %s | %s |\n", class.Name, class.Slots, class.SlotSize, size(l.Ring), size(l.Pinned), size(l.Vault), size(l.Private), size(l.Total()))
	}
	return b.String()
}

func nodesTable(c *config.Config) string {
	var b strings.Builder
	b.WriteString("| attached workers | peers, of which called and calling | memory | of it pinned | queue pairs | descriptors |\n|---|---|---|---|---|---|\n")
	for _, l := range []Load{{1, 1, 1, 1}, {8, 1, 1, 1}, {64, 16, 16, 16}, {256, 16, 16, 16}, {256, 64, 64, 64}} {
		n := Of(c, l)
		fmt.Fprintf(&b, "| %d | %d, %d | %s | %s | %d | %d |\n", l.Workers, l.Peers, l.Calls, size(n.Total()), size(n.Pinned), n.QPs, n.FDs)
	}
	return b.String()
}

// Handshake is the processor time of mutual TLS for each end, as BenchmarkHandshake has
// measured it on two virtual CPUs that others used, too: 0.55 to 0.82 ms.
const Handshake = 600 * time.Microsecond

func fleetTable(c *config.Config) string {
	var b strings.Builder
	b.WriteString("| nodes | each calls | memory of a node | queue pairs | links of a node, of all | restart of all: time of 8 cores | one method changes | all directories | resynchronisation |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, n := range []int{16, 64, 256, 1000, 10000} {
		for _, calls := range []int{16, n - 1} {
			if calls > n-1 || calls == n-1 && n == 16 && calls == 16 {
				continue
			}
			f := Fleet{Nodes: n, Calls: calls, Workers: 256, Methods: 10, Outstanding: 4096, Handshake: Handshake, Cores: 8}
			e := f.Estimate(c)
			fmt.Fprintf(&b, "| %d | %d | %s | %d | %d, %d | %s | %s | %s | %d messages, %s |\n", n, calls, size(e.Total()), e.QPs, n-1, e.AllLinks,
				e.Restart.Round(time.Millisecond), size(e.Directory), size(e.Directories), e.Opens, size(e.Resync))
		}
	}
	return b.String()
}

// size writes a number of bytes for people.
func size(n int) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30))
	case n >= 10<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
}
