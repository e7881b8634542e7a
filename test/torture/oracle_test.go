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
	type counts struct{ lost, duplicated, denied, stuck, wrong, open uint64 }
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
		{outPosted, 0, false, counts{}},
		{outPosted, 1, false, counts{}},
		{outPosted, 2, false, counts{duplicated: 1}},
		{outNotExecuted, 0, false, counts{}},
		{outNotExecuted, 1, false, counts{denied: 1}},
		{outCancelled, 1, false, counts{denied: 1}},
		{outMaybeExecuted, 0, false, counts{}},
		{outMaybeExecuted, 1, false, counts{}},
		{outMaybeExecuted, 3, false, counts{duplicated: 1}},
		{outDeadlineUnsent, 1, false, counts{denied: 1}},
		{outDeadlineSent, 1, false, counts{}},
		{outRefused, 1, false, counts{denied: 1}},
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
		got := counts{j.Lost, j.Duplicated, j.Denied, j.Stuck, j.Wrong, j.Open}
		bad := c.want != counts{open: c.want.open}
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
	if n != 2 || first.errors != 2 || second.errors != 2 {
		t.Errorf("%d without a reason, %d and %d", n, first.errors, second.errors)
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
