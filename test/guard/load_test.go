package guard

import (
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// crowd is how many callers there are under load, each with a batch of requests under way.
const crowd = 8

// load counts what messages cost while processes that nobody slows down have many of
// them under way. How they meet depends on the machine, so these bounds are wide.
func load(t *testing.T) map[string]float64 {
	const rounds, messages = 50, 50 * crowd * batchSize
	a, b := daemontest.Pair(t, sleepsAtOnce)
	service := startService(t, b)
	defer service.Kill()
	callers := make([]*callerProcess, crowd)
	for i := range callers {
		callers[i] = startCaller(t, a)
		defer callers[i].stop()
	}
	all := func(n int) {
		var wg sync.WaitGroup
		for _, c := range callers {
			wg.Go(func() { c.rounds("futures", n) })
		}
		wg.Wait()
	}
	all(warmUp)
	counters := func(n *daemontest.Node) map[string]uint64 {
		s, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Counters
	}
	beforeA, beforeB := counters(a), counters(b)
	all(rounds)
	afterA, afterB := counters(a), counters(b)
	near := func(name string) float64 { return float64(afterA[name] - beforeA[name]) }
	far := func(name string) float64 { return float64(afterB[name] - beforeB[name]) }
	if got := near("requests_sent"); got < messages {
		t.Fatalf("%v requests were sent, want %d", got, messages)
	}
	t.Logf("near: %v cycles, %v sleeps, %v wakes; far: %v, %v, %v", near("agent_cycles"), near("agent_sleeps"), near("wakes"),
		far("agent_cycles"), far("agent_sleeps"), far("wakes"))
	return map[string]float64{
		"request group": near("requests_sent") / near("request_groups"),
		"answer group":  far("answers_sent") / far("answer_groups"),
		"wake-ups":      (near("wakes") + far("wakes")) / messages,
		"cycles":        (near("agent_cycles") + far("agent_cycles")) / messages,
	}
}
