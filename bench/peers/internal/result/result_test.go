package result

import (
	"math"
	"slices"
	"testing"
)

func cell(system string, rates ...float64) *Cell {
	c := &Cell{Setting: "free", Workload: "call", System: system}
	for _, r := range rates {
		if r == 0 {
			c.Samples = append(c.Samples, nil)
			continue
		}
		c.Samples = append(c.Samples, &Sample{Rate: r})
	}
	return c
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  Spread
	}{
		{nil, Spread{}},
		{[]float64{0, 0}, Spread{}},
		{[]float64{3}, Spread{1, 3, 3, 3}},
		{[]float64{4, 2}, Spread{2, 3, 2.5, 3.5}},
		{[]float64{5, 1, 3, 4, 2}, Spread{5, 3, 2, 4}},
		{[]float64{5, 0, 3, 0, 1}, Spread{3, 3, 2, 4}},
	} {
		if got := cell("a", c.rates...).Of(Rate); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.rates, got, c.want)
		}
	}
	var none *Cell
	if got := none.Of(Rate); got.N != 0 {
		t.Errorf("a cell that does not exist: %+v", got)
	}
}

// Groups of several rounds are added up by size, and those beyond all bounds come last.
func TestAddGroups(t *testing.T) {
	c := new(Cell)
	c.AddGroups(map[uint64]uint64{1: 5, 8: 2}, map[uint64]uint64{0: 1, 1: 5, 8: 4, 2: 3})
	c.AddGroups(nil, map[uint64]uint64{8: 1, 4: 7})
	if want := []GroupSize{{2, 3}, {4, 7}, {8, 3}, {0, 1}}; !slices.Equal(c.GroupSizes, want) {
		t.Errorf("%v, want %v", c.GroupSizes, want)
	}
}

// A ratio is one of two values of the same round, and rounds without both do not count.
func TestRatio(t *testing.T) {
	a, b := cell("a", 10, 40, 0, 90), cell("b", 5, 10, 7, 0)
	if got, want := a.Ratio(Rate, b), (Spread{2, 3, 2.5, 3.5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := a.Ratio(Rate, nil); got.N != 0 {
		t.Errorf("to a cell that does not exist: %+v", got)
	}
	if got := a.Ratio(P50, b); got.N != 0 || math.IsNaN(got.Median) {
		t.Errorf("of what was not measured: %+v", got)
	}
}

func TestFindAndFailed(t *testing.T) {
	a, b := cell("a", 1), cell("b", 2)
	r := &Results{Cells: []*Cell{a, b}}
	if r.Find("free", "call", "b") != b || r.Find("pinned", "call", "b") != nil || r.Failed() {
		t.Error("a cell was not found, or found where it is not, or has failed")
	}
	b.Errors = []string{"broken"}
	if !r.Failed() {
		t.Error("an error is no failure")
	}
}

func TestRound(t *testing.T) {
	s := Sample{Messages: 1234567, Rate: 1234567.8, P50: 0.00012345678, CPU: 2}
	s.Round()
	if want := (Sample{Messages: 1234567, Rate: 1234600, P50: 0.00012346, CPU: 2}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

func TestThisMachine(t *testing.T) {
	m, err := ThisMachine("abc")
	if err != nil || m.CPUs < 1 || m.Kernel == "" || m.Revision != "abc" || m.CPU == "" {
		t.Errorf("%+v, %v", m, err)
	}
}
