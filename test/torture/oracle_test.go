package main

import (
	"os"
	"path/filepath"
	"testing"
)

// makeLedger makes a ledger in a new directory.
func makeLedger(t *testing.T) *ledger {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "books"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := &ledger{dir: dir, instance: 3}
	t.Cleanup(func() {
		for _, b := range l.books {
			if err := b.close(); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

// Each way in which a call can be treated badly is found, and no other.
func TestOracle(t *testing.T) {
	type counts struct{ lost, duplicated, denied, stuck, wrong, open, failed uint64 }
	for _, c := range []struct {
		outcome outcome
		runs    int
		killed  bool
		want    counts
	}{
		{outOK, 1, false, counts{}},
		{outOK, 0, false, counts{lost: 1}},
		{outOK, 2, true, counts{duplicated: 1}},
		{outFailed, 0, false, counts{lost: 1}},
		{outPosted, 0, false, counts{failed: 1}},
		{outPosted, 1, false, counts{}},
		{outPosted, 2, false, counts{duplicated: 1}},
		{outNotExecuted, 0, false, counts{failed: 1}},
		{outRegionLost, 1, false, counts{failed: 1}},
		{outRegionLost, 0, false, counts{lost: 1, failed: 1}},
		{outNotExecuted, 1, false, counts{denied: 1, failed: 1}},
		{outCancelled, 1, false, counts{denied: 1}},
		{outMaybeExecuted, 0, false, counts{failed: 1}},
		{outMaybeExecuted, 1, false, counts{failed: 1}},
		{outMaybeExecuted, 3, false, counts{duplicated: 1, failed: 1}},
		{outDeadlineUnsent, 1, false, counts{denied: 1}},
		{outDeadlineSent, 1, false, counts{}},
		{outRefused, 0, false, counts{failed: 1}},
		{outRefused, 1, false, counts{denied: 1, failed: 1}},
		{outStreamLost, 1, false, counts{failed: 1}},
		{outWrong, 1, false, counts{wrong: 1}},
		{outUnexpected, 0, false, counts{wrong: 1}},
		{outNone, 0, true, counts{open: 1}},
		{outNone, 1, true, counts{open: 1}},
		{outNone, 2, true, counts{open: 1, duplicated: 1}},
		{outNone, 1, false, counts{stuck: 1}},
	} {
		l := makeLedger(t)
		r, err := l.begin(styleCall, true)
		if err != nil {
			t.Fatal(err)
		}
		for range c.runs {
			r.book.ran(r.entry, 1)
		}
		if c.outcome != outNone {
			r.end(c.outcome)
		}
		j, err := judge(l.dir, map[int]bool{3: c.killed})
		if err != nil {
			t.Fatal(err)
		}
		got := counts{j.Lost, j.Duplicated, j.Denied, j.Stuck, j.Wrong, j.Open, uint64(len(j.failures))}
		bad := c.want != counts{open: c.want.open, failed: c.want.failed}
		if got != c.want || j.bad() != bad || j.Calls != 1 || j.Executions != uint64(c.runs) || bad != (len(j.Examples) > 0) {
			t.Errorf("%v, run %d times, killed %v: %+v, want %+v", c.outcome, c.runs, c.killed, j, c.want)
		}
	}
}

// A run of a handler that nobody asked for is found, and books that are full are followed
// by others.
func TestBooks(t *testing.T) {
	l := makeLedger(t)
	for range bookEntries + 1 {
		r, err := l.begin(stylePost, false)
		if err != nil {
			t.Fatal(err)
		}
		r.end(outPosted)
	}
	lib := newLibrary(l.dir)
	b, err := lib.get(3*bookGenerations + 1)
	if err != nil {
		t.Fatal(err)
	}
	b.ran(7, 2)
	if _, err := lib.get(4 * bookGenerations); err == nil {
		t.Error("a book that nobody has was opened")
	}
	j, err := judge(l.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if j.Wrong != 1 || j.Calls != bookEntries+2 || len(l.books) != 2 {
		t.Errorf("%d wrong of %d calls in %d books", j.Wrong, j.Calls, len(l.books))
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
}

// oneCall judges a call of a style with an outcome and so many runs.
func oneCall(t *testing.T, s style, o outcome, runs int) *judgement {
	t.Helper()
	l := makeLedger(t)
	r, err := l.begin(s, true)
	if err != nil {
		t.Fatal(err)
	}
	for range runs {
		r.book.ran(r.entry, 1)
	}
	r.end(o)
	j, err := judge(l.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A one-way message that nobody executed has a reason, which may have come a while after it was sent, or is a failure without one.
func TestLostPost(t *testing.T) {
	j := oneCall(t, stylePost, outPosted, 0)
	if n := j.excuse(nil); n != 1 || j.Failures["post"][neverExecuted] != 1 || len(j.Examples) != 1 {
		t.Errorf("%d without a reason: %+v", n, j)
	}
	soon, late := now()+onTheWay/2, now()+2*onTheWay
	i := &injection{fault: &fault{name: "f"}, began: soon, ended: soon}
	if n := j.excuse([]*injection{i}); n != 0 || i.errors != 1 || i.promised != 0 {
		t.Errorf("%d without a reason beside %+v", n, i)
	}
	if n := j.excuse([]*injection{{fault: &fault{name: "f"}, began: late, ended: late}}); n != 1 {
		t.Error("what came long after it is the reason")
	}
	if j := oneCall(t, stylePost, outPosted, 1); j.excuse(nil) != 0 {
		t.Errorf("it was executed: %+v", j)
	}
}

// A handler that has lost a region is to be expected when a core is killed, and of nothing else.
func TestLostRegion(t *testing.T) {
	j := oneCall(t, styleRegion, outRegionLost, 1)
	if n := j.excuse(nil); n != 1 || j.bad() {
		t.Errorf("%d without a reason: %+v", n, j)
	}
	t0 := now()
	core := &injection{fault: &fault{name: "c", core: true}, began: t0 - 1e9, ended: t0}
	link := &injection{fault: &fault{name: "l"}, began: t0 - 1e9, ended: t0}
	if n := j.excuse([]*injection{core, link}); n != 0 || core.errors != 1 || core.promised != 1 || link.errors != 0 {
		t.Errorf("%d without a reason: core %+v, link %+v", n, core, link)
	}
	if n := j.excuse([]*injection{link}); n != 0 || link.errors != 1 || link.promised != 0 {
		t.Errorf("%d without a reason: link %+v", n, link)
	}
}

// An idempotent call is executed again only where there was a reason to send it again.
func TestRepeatedIdempotent(t *testing.T) {
	j := oneCall(t, styleIdempotent, outOK, 2)
	if n := j.excuse([]*injection{{fault: &fault{name: "f"}, began: now() - 1e9, ended: now()}}); n != 0 || j.bad() {
		t.Errorf("%d without a reason: %+v", n, j)
	}
	if n := j.excuse(nil); n != 0 || j.Duplicated != 1 {
		t.Errorf("%d without a reason: %+v", n, j)
	}
	if j := oneCall(t, styleIdempotent, outRefused, 1); j.Denied != 1 {
		t.Errorf("%+v", j)
	}
}

// Requests of one order that start in another one than that of their sending are found, and no others.
func TestOrderIsJudged(t *testing.T) {
	type request struct {
		caller  int
		order   uint64
		remote  bool
		outcome outcome
		ranAt   uint64
	}
	for what, c := range map[string]struct {
		requests []request
		want     uint64
	}{
		"in order":        {requests: []request{{1, 2, true, outOK, 10}, {1, 2, true, outFailed, 20}, {1, 2, true, outOK, 30}}},
		"not in order":    {requests: []request{{1, 2, true, outOK, 10}, {1, 2, true, outOK, 30}, {1, 2, true, outOK, 20}, {1, 2, true, outFailed, 25}}, want: 2},
		"another order":   {requests: []request{{1, 2, true, outOK, 20}, {1, 3, true, outOK, 10}}},
		"another caller":  {requests: []request{{1, 2, true, outOK, 20}, {2, 2, true, outOK, 10}}},
		"another node":    {requests: []request{{1, 2, true, outOK, 20}, {1, 2, false, outOK, 10}}},
		"maybe executed":  {requests: []request{{1, 2, true, outMaybeExecuted, 20}, {1, 2, true, outOK, 10}}},
		"of order and 0s": {requests: []request{{0, 0, false, outOK, 20}, {0, 0, false, outOK, 10}}, want: 1},
	} {
		l := makeLedger(t)
		for _, q := range c.requests {
			r, err := l.begin(styleOrdered, q.remote)
			if err != nil {
				t.Fatal(err)
			}
			r.inOrder(q.caller, q.order)
			r.book.ran(r.entry, 1)
			r.word(entryRanAt).Store(q.ranAt)
			r.end(q.outcome)
		}
		j, err := judge(l.dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if j.Disordered != c.want || j.bad() != (c.want > 0) {
			t.Errorf("%s: %d out of order, want %d: %q", what, j.Disordered, c.want, j.Examples)
		}
	}
}

// A style of which no call works is found when there have been enough of it, or so many calls that there should have been.
func TestMuteStyles(t *testing.T) {
	j := &judgement{Calls: enoughAll - 1, Styles: map[string]*styleCounts{}}
	for s := range styles {
		j.Styles[s.String()] = &styleCounts{Own: routeCounts{enough, 1}, Peer: routeCounts{enough, 1}}
	}
	if p := j.mute(); len(p) != 0 {
		t.Errorf("%q", p)
	}
	j.Styles["stream"].Own.Worked = 0
	j.Styles["post"].Peer = routeCounts{enough - 1, 0}
	if p := j.mute(); len(p) != 1 {
		t.Errorf("%q", p)
	}
	j.Calls++
	if p := j.mute(); len(p) != 2 {
		t.Errorf("%q", p)
	}
}

// A failure is blamed on what was going on, and first on what may make calls fail.
func TestBlame(t *testing.T) {
	harmless, killer := &fault{name: "h"}, &fault{name: "k", kills: true}
	first := &injection{fault: killer, began: 1e9, ended: 2e9}
	second := &injection{fault: harmless, began: 2e9, ended: 3e9}
	n := blame([]*injection{first, second}, []failure{
		{began: 0, ended: 5e8},        // before everything
		{began: 5e8, ended: 1e9 + 1},  // the first
		{began: 15e8, ended: 25e8},    // both
		{began: 22e8, ended: 23e8},    // the second
		{began: 3e9 + 1, ended: 31e8}, // just after it
		{began: 5e9, ended: 6e9},      // long after it
	})
	if len(n) != 2 || first.errors != 2 || second.errors != 2 {
		t.Errorf("%v without a reason, %d and %d", n, first.errors, second.errors)
	}
}

func TestMessages(t *testing.T) {
	for _, size := range []int{0, 1, 7, 8, 9, 1000} {
		h := head{book: 5, entry: 6, length: headSize + size, answer: size, micros: 3, flags: headFail}
		b := make([]byte, h.length)
		h.encode(b)
		got, err := decode(b)
		if err != nil || got != h {
			t.Fatalf("%+v, %v", got, err)
		}
		answer := make([]byte, size)
		fill(answer, h.seed(true))
		if !h.right(answer) || h.right(append(answer, 0)) {
			t.Errorf("%d bytes: the answer is taken for another", size)
		}
		for i := range b {
			b[i] ^= 4
			if _, err := decode(b); err == nil {
				t.Fatalf("%d bytes: a damaged byte %d goes unnoticed", size, i)
			}
			b[i] ^= 4
		}
		for i := range answer {
			answer[i] ^= 4
			if h.right(answer) {
				t.Fatalf("a damaged byte %d of the answer goes unnoticed", i)
			}
			answer[i] ^= 4
		}
	}
}
