package test

import (
	"os"
	"path/filepath"
	"testing"
)

// counted is a load of which every request's outcome and executions are known: processes
// on both nodes send numbered requests to the other one, whose service notes each number
// when it is executed.
type counted struct {
	t       *testing.T
	c       *cluster
	journal string
	callers []*member
	// services are the processes of each node.
	services map[string][]*member
}

// startCounted starts two services on each node, and callers on those named.
func startCounted(t *testing.T, c *cluster, callers ...string) *counted {
	t.Helper()
	l := &counted{t: t, c: c, journal: filepath.Join(t.TempDir(), "journal"), services: map[string][]*member{}}
	other := map[string]string{"a": "b", "b": "a"}
	for node := range other {
		l.services[node] = startNoted(t, c, node, l.journal)
	}
	for from, to := range other {
		c.awaitService(from, to, "jobs", "note", 0)
	}
	for i, from := range callers {
		l.callers = append(l.callers, startMember(t, "counting", roleArgs{Socket: c.socket(from), Node: other[from], Service: "jobs", Seed: uint64(i)}))
	}
	eventually(t, "requests of all callers are executed", func() bool {
		from := map[uint64]bool{}
		for id := range executions(t, l.journal) {
			from[id>>32] = true
		}
		return len(from) == len(callers)
	})
	return l
}

// flows waits until some more requests have been executed.
func (l *counted) flows() {
	l.t.Helper()
	size := func() int64 {
		info, err := os.Stat(l.journal)
		if err != nil {
			l.t.Fatal(err)
		}
		return info.Size()
	}
	// A line has about ten bytes.
	const some = 300 * 10
	before := size()
	eventually(l.t, "requests are executed", func() bool { return size() > before+some })
}

// end ends the load and checks that every request has an outcome, that none was executed
// twice, those answered once, those not executed never; and that none was disturbed,
// unless that may be. It returns how many requests ended in each way, by the letters of
// counting.
func (l *counted) end(disturbed bool) map[byte]int {
	t := l.t
	t.Helper()
	all := make([][]byte, len(l.callers))
	for i, m := range l.callers {
		_ = m.in.Close()
		m.hearWithin(3*limit, &all[i])
		m.finish()
	}
	ran := executions(t, l.journal)
	ends := map[byte]int{}
	for i, letters := range all {
		for n, letter := range letters {
			id := uint64(i)<<32 | uint64(n)
			count := ran[id]
			delete(ran, id)
			ends[letter]++
			good := map[byte]bool{'a': count == 1, 'n': count == 0 && disturbed, 'm': count <= 1 && disturbed}[letter]
			if !good {
				t.Errorf("request %d of caller %d ended as %q and was executed %d times", n, i, letter, count)
			}
		}
	}
	if len(ran) > 0 {
		t.Errorf("%d requests were executed that nobody sent", len(ran))
	}
	t.Logf("%d requests answered, %d not executed, %d maybe", ends['a'], ends['n'], ends['m'])
	for _, node := range []string{"a", "b"} {
		l.c.awaitQuiet(node, 0)
	}
	return ends
}
