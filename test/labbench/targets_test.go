package main

import (
	"strings"
	"testing"
)

// Every target can be judged by what is measured.
func TestTargetsAreMeasured(t *testing.T) {
	var r Report
	for _, p := range rawPoints {
		v := RawResult{Tool: p.tool, Size: p.size, Rate: 1000}
		if p.tool == "ib_write_lat" {
			v.Rate, v.LatencyUS = 0, 10
		}
		r.Raw = append(r.Raw, v)
	}
	for _, b := range bares {
		r.PingPong = append(r.PingPong, PingPong{Idle: b.idle, Request: b.request, Answer: b.answer, Outstanding: b.outstanding, Rate: 1000, P50US: 20})
	}
	for _, s := range settings {
		for _, l := range loads {
			rate, p50 := 1.0, 1e6
			if s.groups {
				rate, p50 = 3000, 50
			}
			r.Rdmad = append(r.Rdmad, Result{Workload: l.workload, Size: l.size, Clients: l.clients, Depth: l.depth, Idle: s.idle, Groups: s.groups, Embedded: s.embedded, Rate: rate, P50US: p50})
		}
	}
	r.judge()
	if len(r.Targets) != 4*len(targets) {
		t.Fatalf("%d of %d targets were judged", len(r.Targets), 4*len(targets))
	}
	for _, v := range r.Targets {
		want := 3.0
		if v.AtMost {
			want = 2.5
		}
		if v.Ratio != want || !v.Met {
			t.Errorf("%+v: want ratio %v", v, want)
		}
	}
	for i := range r.Rdmad {
		r.Rdmad[i].Rate, r.Rdmad[i].P50US = 300, 60
	}
	r.Targets = nil
	r.judge()
	for _, v := range r.Targets {
		if v.Met {
			t.Errorf("%+v is met", v)
		}
	}
	var out strings.Builder
	if err := r.printTargets(&out); err != nil || strings.Count(out.String(), "not met") != len(r.Targets) {
		t.Errorf("%v\n%s", err, &out)
	}
	r = Report{}
	if r.judge(); len(r.Targets) != 0 {
		t.Errorf("nothing was measured: %+v", r.Targets)
	}
}

func TestPingPongLine(t *testing.T) {
	if rate, p50, err := pingPongLine("26907.3 34.25\n"); err != nil || rate != 26907.3 || p50 != 34.25 {
		t.Error(rate, p50, err)
	}
	for _, bad := range []string{"", "x\n", "5\n", "0 3\n", "3 -1\n"} {
		if _, _, err := pingPongLine(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
