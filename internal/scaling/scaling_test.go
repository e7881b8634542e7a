package scaling_test

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/scaling"
)

var update = flag.Bool("update", false, "write the tables into docs/scaling.md")

const page = "../../docs/scaling.md"

// table is a table of the page between its marks.
var table = regexp.MustCompile(`(?s)<!-- table (\w+) -->\n(.*?)<!-- end -->`)

// The page shows what this package computes for the default configuration.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	tables := scaling.Tables(config.Default())
	shown := map[string]bool{}
	want := table.ReplaceAllFunc(text, func(found []byte) []byte {
		name := string(table.FindSubmatch(found)[1])
		shown[name] = true
		return []byte("<!-- table " + name + " -->\n" + tables[name] + "<!-- end -->")
	})
	for name := range tables {
		if !shown[name] {
			t.Errorf("the page has no table %q", name)
		}
	}
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(want) != string(text) {
		t.Errorf("%s is not what is computed: go test ./internal/scaling -update", page)
	}
}

// What is computed for a worker is within its budget, and a node's parts add up.
func TestBudget(t *testing.T) {
	if n := scaling.Worker(); n > scaling.WorkerBudget {
		t.Errorf("a worker costs %d bytes, the budget is %d", n, scaling.WorkerBudget)
	}
	c := config.Default()
	one := scaling.Of(c, scaling.Load{Workers: 1, Peers: 1, Calls: 1})
	two := scaling.Of(c, scaling.Load{Workers: 2, Peers: 2, Calls: 1, Called: 1})
	if two.Total() != 2*one.Total() || two.QPs != 2*one.QPs || two.FDs != 2*one.FDs {
		t.Errorf("twice the load costs %+v, once %+v", two, one)
	}
	way, lanes := scaling.Lanes(c)
	if one.QPs != lanes || one.Pinned != way.Pinned || one.Lanes != way.Total() {
		t.Errorf("lanes of a node: %+v, of one way: %+v", one, way)
	}
}

// A fleet of which every node calls every other needs lanes by the square.
func TestFleet(t *testing.T) {
	c := config.Default()
	f := scaling.Fleet{Nodes: 100, Calls: 99, Workers: 1, Methods: 1, Handshake: scaling.Handshake, Cores: 1}
	e := f.Estimate(c)
	if _, lanes := scaling.Lanes(c); e.QPs != 2*99*lanes {
		t.Errorf("%d queue pairs, want %d", e.QPs, 2*99*lanes)
	}
	if e.AllLinks != 4950 || e.Restart != 99*scaling.Handshake {
		t.Errorf("%d links in %v, want 4950 in %v", e.AllLinks, e.Restart, 99*scaling.Handshake)
	}
	f.Calls = 1000 // more than there are
	if again := f.Estimate(c); again.QPs != e.QPs {
		t.Errorf("%d queue pairs to all others, and %d to more than those", e.QPs, again.QPs)
	}
}
