package bench

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// The check of an answer is no part of the next call, however many are outstanding: with two, a call waits for the check of one
// other answer.
func TestLatencyWithoutCheck(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), a.Socket, server.Workers(1))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	if err := Register(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	go func() { served <- s.Serve(t.Context()) }()
	conn, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, workload := range []Workload{Pages, Stream} {
		// The best of some runs: in one the machine may stand still during a call. A check that is part of a call is in all.
		for depth, most := range map[int]float64{1: 0.5, 2: 1.4, 4: 3.1} {
			m, err := conn.Method(t.Context(), workload.method())
			if err != nil {
				t.Fatal(err)
			}
			var latency, each float64
			for tries := 0; tries < 5 && (tries == 0 || latency > most*each); tries++ {
				latency, each = checkedSlowly(t, workload, depth, m)
			}
			if latency > most*each {
				t.Errorf("%s, %d outstanding: a latency of %v, and one call after the other takes %v", workload, depth, time.Duration(latency), time.Duration(each))
			}
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-served
}

// checkedSlowly makes some calls whose answers take long to check, and returns their mean latency and the time of one after the other,
// in ns.
func checkedSlowly(t *testing.T, workload Workload, depth int, m *client.Method) (latency, each float64) {
	t.Helper()
	l := newLoad(&job{Spec: Spec{Workload: workload, Size: 64 << 10, Depth: depth, Clients: 1}}, m)
	check := l.check
	l.check = func(a []byte, stamp uint64) bool {
		time.Sleep(50 * time.Millisecond) // what it takes, not what is waited for
		return check(a, stamp)
	}
	const calls = 8
	begun := time.Now()
	if err := l.run(t.Context(), calls, 0); err != nil || l.mismatches > 0 {
		t.Fatalf("%v, %d answers were wrong", err, l.mismatches)
	}
	return float64(l.latency.Histogram().Mean()), float64(time.Since(begun)) / calls
}
