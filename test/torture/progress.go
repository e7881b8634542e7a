package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// tell prints a line about the run now and then, until stop is closed.
func (r *run) tell(stop <-chan struct{}) {
	tick := time.NewTicker(r.options.progress)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			fmt.Fprintln(r.out, r.line())
		}
	}
}

// line says how far the run is.
func (r *run) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%4.0fs  %d calls", time.Since(r.began).Seconds(), r.board.get(boardCalls))
	for _, o := range []outcome{outOK, outMaybeExecuted, outNotExecuted, outRefused} {
		fmt.Fprintf(&b, ", %d %s", r.board.get(boardOutcomes+int(o)), o)
	}
	r.mu.Lock()
	fmt.Fprintf(&b, "; %d faults:", len(r.injections))
	for _, f := range r.possible {
		if n := r.counts[f.name]; n > 0 {
			fmt.Fprintf(&b, " %s %d", f.name, n)
		}
	}
	r.mu.Unlock()
	if f := r.current.Load(); f != nil {
		fmt.Fprintf(&b, "; now %s", f.name)
	}
	return b.String()
}

// numbers are the numbers in a text, between spaces.
func numbers(text string) (list []int) {
	for _, f := range strings.Fields(text) {
		if n, err := strconv.Atoi(f); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// nodeOf returns the node that a process is attached to.
func (r *run) nodeOf(m *member) *node { return r.nodes[nodeIndex(m.args.Node)] }
