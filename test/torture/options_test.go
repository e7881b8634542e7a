package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"--seed=9", "--duration=3s", "--faults=-silence,-slow", "--no-errors=link-reset", "--worker-kills=7", "--config=[agent]\nidle = 'busy'"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(o.faults, "slow") || len(o.faults) != len(faults)-2 || !slices.Equal(o.noErrors, []string{"link-reset"}) || o.limits["worker-kills"] != 7 {
		t.Errorf("%+v", o)
	}
	want := `bin/torture --config='[agent]` + "\n" + `idle = '\''busy'\'''` + ` --duration=3s --faults=-silence,-slow --no-errors=link-reset --worker-kills=7 --seed=9`
	if o.command != want {
		t.Errorf("repeated by %s\nwant %s", o.command, want)
	}
	if o, err := parseOptions(nil, io.Discard); err != nil || o.seed == 0 || len(o.faults) != len(faults) || !strings.Contains(o.command, "--seed=") {
		t.Errorf("%+v, %v", o, err)
	}
	t.Setenv("TMPDIR", "here")
	if o, err := parseOptions(nil, io.Discard); err != nil || !filepath.IsAbs(o.dir) {
		t.Errorf("the run is in %q, %v", o.dir, err)
	}
	for _, bad := range [][]string{{"--faults=nothing"}, {"x"}, {"--workers=1"}, {"--largest=2"}, {"--progress=0s"}, {"--duration=-1s"},
		{"--faults=core-kill", "--no-errors=slow"}, {"--faults=none", "--no-errors=all"}, {"--fabric=foo"}, {"--tls-data=foo"}, {"--config=[agent]\nidle = 'sometimes'"}, {"--config=[agent"}} {
		if _, err := parseOptions(bad, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"0", "-1", "1e3", "7x", ""} {
		if _, err := parseOptions([]string{"--worker-kills=" + bad}, io.Discard); err == nil {
			t.Errorf("a limit of %q is accepted", bad)
		}
	}
}

// A seed chooses the same faults each time, all of them, and as often as they weigh.
func TestChoice(t *testing.T) {
	var all []*fault
	sum := 0
	for i := range faults {
		all, sum = append(all, &faults[i]), sum+faults[i].weight
	}
	one, two := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(1, 1))
	count := map[string]int{}
	const n = 100_000
	for range n {
		f := choose(one, all)
		if f != choose(two, all) {
			t.Fatal("a seed chooses differently")
		}
		count[f.name]++
	}
	for _, f := range all {
		if want := n * f.weight / sum; count[f.name] < want*8/10 || count[f.name] > want*12/10 {
			t.Errorf("%s was chosen %d times, want about %d", f.name, count[f.name], want)
		}
	}
}

// Of what there has been enough of there is no more, while other limits are open.
func TestLimits(t *testing.T) {
	r := &run{options: &options{limits: map[string]int{"worker-kills": 2, "core-kills": 1}}, counts: map[string]int{}}
	for i := range faults {
		r.possible = append(r.possible, &faults[i])
	}
	has := func(name string) bool {
		return slices.ContainsFunc(r.open(), func(f *fault) bool { return f.name == name })
	}
	if !has("worker-kill") || !has("slow") || len(r.unreached()) != 2 {
		t.Errorf("open %d, unreached %v", len(r.open()), r.unreached())
	}
	for range 2 {
		r.note(&injection{fault: &fault{name: "worker-kill"}})
	}
	if has("worker-kill") || !has("core-kill") || !has("worker-core-kill") || !has("slow") {
		t.Error("worker-kill goes on, or others do not")
	}
	r.note(&injection{fault: &fault{name: "core-kill"}})
	if has("core-kill") || has("worker-core-kill") || len(r.unreached()) != 0 {
		t.Error("core-kill goes on")
	}
}

func TestQuantile(t *testing.T) {
	if quantile(nil, 0.5) != 0 || quantile([]time.Duration{3, 1, 2}, 0.5) != 2 || quantile([]time.Duration{3, 1, 2}, 0.99) != 3 {
		t.Error("wrong quantiles")
	}
}
