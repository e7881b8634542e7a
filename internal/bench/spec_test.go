package bench

import (
	"strings"
	"testing"
	"time"
)

func TestSpecCheck(t *testing.T) {
	good := Spec{Workload: Call, Size: 64, Clients: 8, Depth: 64, Duration: time.Second}
	if err := good.Check(); err != nil {
		t.Fatalf("%+v: %v", good, err)
	}
	for _, c := range []struct {
		change func(*Spec)
		want   string
	}{
		{func(s *Spec) { s.Size = -1 }, "size -1"},
		{func(s *Spec) { s.Target = "b/echo/echo" }, `target "b/echo/echo": want the name of a node, such as "b"`},
		{func(s *Spec) { s.Size = 1<<30 + 1 }, "size 1073741825"},
		{func(s *Spec) { s.Clients = 0 }, "0 clients"},
		{func(s *Spec) { s.Depth = 0 }, "depth 0"},
		{func(s *Spec) { s.Duration = 0 }, "duration 0s"},
		{func(s *Spec) { s.Warmup = -1 }, "warm-up -1ns"},
		{func(s *Spec) { s.Count = 7 }, "7 messages for 8 clients"},
		{func(s *Spec) { s.Workload = OneWay }, "nothing is outstanding"},
		{func(s *Spec) { s.Size, s.Depth = maxSize, maxDepth }, "half of this machine's memory"},
	} {
		bad := good
		c.change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", bad, err, c.want)
		}
	}
	counted := good
	counted.Count, counted.Duration = 8, 0
	if err := counted.Check(); err != nil {
		t.Errorf("with a count no duration is needed: %v", err)
	}
}

func TestSharesAddUp(t *testing.T) {
	for _, count := range []uint64{1, 7, 8, 9, 1000, 1<<40 + 3} {
		for _, n := range []int{1, 2, 7, 8} {
			var sum, least, most uint64
			least = count
			for i := range n {
				s := share(count, i, n)
				sum += s
				least, most = min(least, s), max(most, s)
			}
			if sum != count || most-least > 1 {
				t.Errorf("%d over %d: shares add up to %d, from %d to %d", count, n, sum, least, most)
			}
		}
	}
}

func TestAddress(t *testing.T) {
	s := Spec{Workload: Pages}
	if got := s.address(s.Workload.method()); got != "bench/page" {
		t.Errorf("without a target: %q", got)
	}
	s.Target = "b"
	if got := s.address(s.Workload.method()); got != "b/bench/page" {
		t.Errorf("with a target: %q", got)
	}
}
