package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// judgement is what the books come to.
type judgement struct {
	// Calls is how many were begun, Executions how many handlers ran.
	Calls      uint64 `json:"calls"`
	Executions uint64 `json:"executions"`
	// Outcomes are counted by name.
	Outcomes map[string]uint64 `json:"outcomes"`
	// Styles are the calls by the name of their style.
	Styles map[string]*styleCounts `json:"styles"`
	// Open is how many have no outcome because their worker was killed.
	Open uint64 `json:"open"`
	// Lost: answered, and no handler ran. Duplicated: a handler ran more than once. Denied: said
	// not to have been executed, and executed. Stuck: without an outcome although
	// the worker lives. Wrong: wrong bytes, or an error that no call may end with. Disordered: started
	// before one that was sent earlier with the same order.
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	Denied     uint64 `json:"denied"`
	Stuck      uint64 `json:"stuck"`
	Wrong      uint64 `json:"wrong"`
	Disordered uint64 `json:"disordered"`
	// Failures counts, by style and outcome, the calls that ended in an error that their
	// programs did not ask for, and the one-way messages that nobody executed.
	Failures map[string]map[string]int `json:"failures"`
	// Examples are some of what is wrong.
	Examples []string `json:"examples,omitempty"`

	failures []failure
	// repeated are the idempotent calls that were executed more than once, which takes a reason, too.
	repeated []failure
}

// styleCounts are the calls of a style, to the own node and to the other.
type styleCounts struct {
	Own  routeCounts `json:"own"`
	Peer routeCounts `json:"peer"`
}

// routeCounts is how many calls there were, and how many of them did what such calls are made for.
type routeCounts struct {
	Calls  uint64 `json:"calls"`
	Worked uint64 `json:"worked"`
}

// failure is a call that ended in an error that its program did not ask for.
type failure struct {
	// began and ended are between when something happened to it.
	began, ended int64
	// regionLost: a handler has lost the way to a region.
	regionLost bool
	example    string
}

// bad reports whether anything is not as it must be.
func (j *judgement) bad() bool {
	return j.Lost+j.Duplicated+j.Denied+j.Stuck+j.Wrong+j.Disordered > 0
}

// mostExamples bounds the examples.
const mostExamples = 12

func (j *judgement) example(text string) {
	if len(j.Examples) < mostExamples {
		j.Examples = append(j.Examples, text)
	}
}

// judge judges all books of a run. killed are the instances that were killed.
func judge(dir string, killed map[int]bool) (*judgement, error) {
	j := &judgement{Outcomes: map[string]uint64{}, Styles: map[string]*styleCounts{}, Failures: map[string]map[string]int{}}
	for s := range styles {
		j.Styles[s.String()] = &styleCounts{}
	}
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
	orders := map[order]int64{}
	for i := range bookEntries {
		e := b.read(i)
		if e.intent == 0 && e.runs == 0 {
			continue
		}
		j.Calls++
		j.Executions += e.runs
		j.judgeRuns(&e)
		j.judgeOutcome(&e, killed)
		j.judgeOrder(&e, orders)
	}
}

// judgeRuns judges how often a call was executed, by what its worker was told.
func (j *judgement) judgeRuns(e *entry) {
	least, most := e.outcome.allows()
	switch {
	case e.intent == 0:
		j.Wrong++
		j.example(e.describe("executed, and nobody asked"))
	case e.runs > 1 && e.style() == styleIdempotent && most > 0:
		j.repeated = append(j.repeated, failure{began: e.began, ended: e.ended, example: e.describe("executed again without a reason")})
	case e.runs > 1:
		j.Duplicated++
		j.example(e.describe("executed more than once"))
	case e.runs < least:
		j.Lost++
		j.example(e.describe("answered, and not executed"))
	case e.runs > most:
		j.Denied++
		j.example(e.describe("executed, and denied"))
	}
}

// onTheWay is for how long after it was sent something may happen to a one-way message.
const onTheWay = int64(1e9)

// neverExecuted is what the table calls the outcome of a one-way message that no handler has seen.
const neverExecuted = "posted, never executed"

// judgeOutcome judges what the worker was told, if anything.
func (j *judgement) judgeOutcome(e *entry, killed bool) {
	if e.outcome == outNone {
		if !killed {
			j.Stuck++
			j.example(e.describe("without an outcome"))
		} else {
			j.Open++
		}
		return
	}
	j.Outcomes[e.outcome.String()]++
	if s := j.Styles[e.style().String()]; s != nil {
		to := &s.Own
		if e.remote {
			to = &s.Peer
		}
		to.Calls++
		if e.worked() {
			to.Worked++
		}
	}
	switch {
	case e.outcome == outWrong || e.outcome >= outUnexpected:
		j.Wrong++
		j.example(e.describe("wrong"))
	case e.outcome == outPosted && e.runs == 0:
		j.fail(e, neverExecuted, onTheWay)
	case e.outcome.visible():
		j.fail(e, e.outcome.String(), 0)
	}
}

// fail enters a call that has failed, or has done so at most a time after its end.
func (j *judgement) fail(e *entry, how string, later int64) {
	s := e.style().String()
	if j.Failures[s] == nil {
		j.Failures[s] = map[string]int{}
	}
	j.Failures[s][how]++
	j.failures = append(j.failures, failure{
		began: e.began, ended: e.ended + later, regionLost: e.outcome == outRegionLost, example: e.describe("failed without a reason"),
	})
}

// order is what requests have in common that are started in the order in which they were sent.
type order struct {
	intent uint64
	remote bool
}

// judgeOrder judges when an ordered request was started; those of the same order were sent as they are in the book. One that may
// have been executed may still run after later ones, when its lane was lost.
func (j *judgement) judgeOrder(e *entry, orders map[order]int64) {
	if e.intent == 0 || e.style() != styleOrdered || e.runs != 1 || e.ranAt == 0 || e.outcome != outOK && e.outcome != outFailed {
		return
	}
	o := order{e.intent, e.remote}
	if e.ranAt < orders[o] {
		j.Disordered++
		j.example(e.describe(fmt.Sprintf("started before one that was sent earlier, which started at %d", orders[o])))
	}
	orders[o] = max(orders[o], e.ranAt)
}

// enough is how many calls of a style, or how many in all, are so many that some of each style to each node must have worked.
const (
	enough    = 100
	enoughAll = 20_000
)

// mute says which styles have never worked.
func (j *judgement) mute() (problems []string) {
	for s := range styles {
		c := j.Styles[s.String()]
		for _, to := range []struct {
			node string
			n    routeCounts
		}{{"the own node", c.Own}, {"the other node", c.Peer}} {
			if to.n.Worked == 0 && (to.n.Calls >= enough || j.Calls >= enoughAll) {
				problems = append(problems, fmt.Sprintf("none of %d calls of the style %q to %s has worked", to.n.Calls, s, to.node))
			}
		}
	}
	return problems
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

// explains reports whether an injection may be the reason for a failure.
func (i *injection) explains(f *failure) bool { return i.began <= f.ended && f.began <= i.ended+after }

// meant reports whether a failure is one that the fault is known for: calls of a service that is killed, operations on regions when a core is.
func (i *injection) meant(f *failure) bool { return i.fault.kills || i.fault.core && f.regionLost }

// blame counts for each injection the failures that it explains, and returns those that have
// no reason at all. If several faults could be the reason, one that is known for it
// is, else the last.
func blame(injections []*injection, failures []failure) (unexplained []failure) {
	for _, f := range failures {
		var reason *injection
		for _, i := range injections {
			if i.explains(&f) && (reason == nil || !reason.meant(&f) || i.meant(&f)) {
				reason = i
			}
		}
		switch {
		case reason == nil:
			unexplained = append(unexplained, f)
		case f.regionLost && reason.fault.core:
			reason.errors, reason.promised = reason.errors+1, reason.promised+1
		default:
			reason.errors++
		}
	}
	return unexplained
}

// excuse looks for reasons for what has gone wrong, and returns how many calls have failed without any. An idempotent call that was
// executed again without any is executed twice as others are.
func (j *judgement) excuse(injections []*injection) (unexplained int) {
	for _, f := range j.repeated {
		if !slices.ContainsFunc(injections, func(i *injection) bool { return i.explains(&f) }) {
			j.Duplicated++
			j.example(f.example)
		}
	}
	failed := blame(injections, j.failures)
	for _, f := range failed {
		j.example(f.example)
	}
	return len(failed)
}
