package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// judgement is what the books come to.
type judgement struct {
	// Calls is how many were begun, Executions how many handlers ran.
	Calls      uint64 `json:"calls"`
	Executions uint64 `json:"executions"`
	// Outcomes are counted by name.
	Outcomes map[string]uint64 `json:"outcomes"`
	// Open is how many have no outcome because their worker was killed.
	Open uint64 `json:"open"`
	// Lost: answered, and no handler ran. Duplicated: a handler ran more than once. Denied: said
	// not to have been executed, and executed. Stuck: without an outcome although
	// the worker lives. Wrong: wrong bytes, or an error that no call may end with.
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Denied     uint64 `json:"denied"`
	Stuck      uint64 `json:"stuck"`
	Wrong      uint64 `json:"wrong"`
	// Failures counts, by style and outcome, the calls that ended in an error that their
	// programs did not ask for.
	Failures map[string]map[string]int `json:"failures"`
	// Examples are some of what is wrong.
	Examples []string `json:"examples,omitempty"`

	failures []failure
}

// failure is a call that ended in an error that its program did not ask for.
type failure struct{ began, ended int64 }

// bad reports whether anything is not as it must be.
func (j *judgement) bad() bool {
	return j.Lost+j.Duplicated+j.Denied+j.Stuck+j.Wrong > 0
}

// mostExamples bounds the examples.
const mostExamples = 12

func (j *judgement) example(b *book, entry int, what string) {
	if len(j.Examples) >= mostExamples {
		return
	}
	at := func(w int) uint64 { return b.at(entry, w).Load() }
	j.Examples = append(j.Examples, fmt.Sprintf("%s: worker %d, book %d entry %d, %v, remote %d, outcome %v, began %d, ended %d, run %d times, last by service %d at %d",
		what, instanceOf(b.number), b.number, entry, style(at(entryIntent)&0xff), at(entryRoute), outcome(at(entryOutcome)),
		at(entryBegan), at(entryEnded), at(entryRuns), at(entryServer), at(entryRanAt)))
}

// judge judges all books of a run. killed are the instances that were killed.
func judge(dir string, killed map[int]bool) (*judgement, error) {
	j := &judgement{Outcomes: map[string]uint64{}, Failures: map[string]map[string]int{}}
	files, err := os.ReadDir(filepath.Join(dir, "books"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		number, err := strconv.Atoi(f.Name())
		if err != nil {
			return nil, fmt.Errorf("books: %w", err)
		}
		b, err := openBook(dir, number)
		if errors.Is(err, errNoBook) {
			continue // its worker was killed while it made it
		}
		if err != nil {
			return nil, err
		}
		j.judge(b, killed[instanceOf(number)])
		if err := b.close(); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// judge judges one book.
func (j *judgement) judge(b *book, killed bool) {
	for i := range bookEntries {
		intent, runs := b.at(i, entryIntent).Load(), b.at(i, entryRuns).Load()
		if intent == 0 && runs == 0 {
			continue
		}
		j.Calls++
		j.Executions += runs
		o := outcome(b.at(i, entryOutcome).Load())
		if o == outNone {
			j.Open++
		} else {
			j.Outcomes[o.String()]++
		}
		least, most := o.allows()
		// Idempotent calls may be executed any number of times, unless they are not.
		again := style(intent) == styleIdempotent && most > 0
		switch {
		case intent == 0:
			j.Wrong++
			j.example(b, i, "executed, and nobody asked")
		case runs > 1 && !again:
			j.Duplicated++
			j.example(b, i, "executed more than once")
		case runs < least:
			j.Lost++
			j.example(b, i, "answered, and not executed")
		case runs > most && !again:
			j.Denied++
			j.example(b, i, "executed, and denied")
		}
		switch {
		case o == outNone && !killed:
			j.Stuck++
			j.Open--
			j.example(b, i, "without an outcome")
		case o == outWrong || o >= outUnexpected:
			j.Wrong++
			j.example(b, i, "wrong")
		case o.visible():
			s := style(intent).String()
			if j.Failures[s] == nil {
				j.Failures[s] = map[string]int{}
			}
			j.Failures[s][o.String()]++
			j.failures = append(j.failures, failure{int64(b.at(i, entryBegan).Load()), int64(b.at(i, entryEnded).Load())})
		}
	}
}

// after is how long after its end a fault may still be the reason for a failure.
const after = int64(100e6)

// undisturbed returns how much of the time between two others no injection explains anything in. They are in the order of their times.
func undisturbed(injections []*injection, from, to int64) (sum int64) {
	for _, i := range injections {
		sum += max(0, min(i.began, to)-from)
		from = max(from, i.ended+after)
	}
	return sum + max(0, to-from)
}

// blame counts for each injection the failures that it explains, and returns how many have
// no reason at all. If several faults could be the reason, one that kills a service is,
// else the last.
func blame(injections []*injection, failures []failure) (unexplained int) {
	for _, f := range failures {
		var reason *injection
		for _, i := range injections {
			if i.began <= f.ended && f.began <= i.ended+after && (reason == nil || !reason.fault.kills || i.fault.kills) {
				reason = i
			}
		}
		if reason == nil {
			unexplained++
		} else {
			reason.errors++
		}
	}
	return unexplained
}
