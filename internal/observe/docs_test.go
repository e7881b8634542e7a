package observe

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/rdmad/rdmad/internal/counters"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const (
	docsFile  = "../../docs/metrics.md"
	dashboard = "../../deploy/grafana/rdmad.json"
	beginning = "<!-- What follows is made by: go test ./internal/observe -run TestDocs -update -->\n"
	ending    = "<!-- end -->\n"
)

// tables are the tables of docs/metrics.md.
func tables() string {
	var b strings.Builder
	b.WriteString(beginning + "\n## Metrics\n\n| metric | type | labels | |\n|---|---|---|---|\n")
	for _, m := range Metrics() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), m.Help)
	}
	for _, t := range []struct {
		of    string
		infos []counters.Info
	}{
		{"an agent", counters.Infos[counters.AgentCounts]()}, {"a lane", counters.Infos[counters.LaneCounts]()},
		{"a method", counters.Infos[counters.ServiceCounts]()}, {"the node", counters.Infos[counters.NodeCounts]()},
	} {
		fmt.Fprintf(&b, "\n## Counters of %s\n\n| counter | unit | |\n|---|---|---|\n", t.of)
		for _, i := range t.infos {
			help := i.Help
			if i.Gauge {
				help = "(now) " + help
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", i.Name, i.Unit, help)
		}
	}
	fmt.Fprintf(&b, "\n## Outcomes\n\n")
	for s := 0; counters.OutcomeName(s) != "other"; s++ {
		fmt.Fprintf(&b, "`%s`, ", counters.OutcomeName(s))
	}
	b.WriteString("`other`.\n")
	return b.String()
}

// The documentation lists what there is.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	own, made, found := strings.Cut(string(text), beginning)
	_, rest, ended := strings.Cut(made, ending)
	if !found || !ended {
		t.Fatalf("%s has no lines %s and %s", docsFile, beginning, ending)
	}
	want := own + tables() + ending + rest
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s is not what the table says: go test ./internal/observe -run TestDocs -update", docsFile)
	}
}

// What promtool would say of the metrics.
func TestLint(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(newFake(t)))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if len(families) != len(table) {
		t.Errorf("%d metrics were gathered, %d are in the table", len(families), len(table))
	}
}

// A dashboard shows only what there is, and what it says of it fits.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID, Title string
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr, RefID string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	known := map[string]*Metric{}
	for _, m := range Metrics() {
		known[m.Name] = m
	}
	check := func(where, expr string) {
		t.Helper()
		names := regexp.MustCompile(`\b(rdmad|go|process)_[a-z_]+`).FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s shows no metric: %s", where, expr)
		}
		for _, name := range names {
			m := known[name]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, is := strings.CutSuffix(name, suffix); is && m == nil && known[base] != nil && known[base].Kind == Histogram {
					m = known[base]
				}
			}
			if m == nil {
				t.Errorf("%s: there is no metric %s", where, name)
				continue
			}
			if m.Kind == Histogram && m == known[name] {
				t.Errorf("%s: %s is a histogram: _bucket, _sum or _count", where, name)
			}
			if m.Kind == Counter && !strings.Contains(expr, "rate(") && !strings.Contains(expr, "increase(") {
				t.Errorf("%s: %s is a counter without a rate", where, name)
			}
		}
		for _, by := range regexp.MustCompile(`by \(([a-z_, ]+)\)`).FindAllStringSubmatch(expr, -1) {
			for label := range strings.FieldsFuncSeq(by[1], func(r rune) bool { return r == ',' || r == ' ' }) {
				if label != "le" && label != "instance" && !slices.ContainsFunc(names, func(n string) bool {
					m := known[n]
					for _, suffix := range []string{"_bucket", "_sum", "_count"} {
						if m == nil {
							m = known[strings.TrimSuffix(n, suffix)]
						}
					}
					return m != nil && slices.Contains(m.Labels, label)
				}) {
					t.Errorf("%s: no metric has the label %s: %s", where, label, expr)
				}
			}
		}
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
	if d.UID == "" || d.Title == "" || len(d.Panels) < 12 || len(d.Templating.List) < 2 {
		t.Errorf("%q %q: %d panels, %d variables", d.UID, d.Title, len(d.Panels), len(d.Templating.List))
	}
}
