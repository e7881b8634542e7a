//go:build faultpoints

package fault

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// outcomes are how requests ended, by their ids.
type outcomes map[uint64]string

// readOutcomes reads what victims have written down.
func readOutcomes(t *testing.T, name string) outcomes {
	t.Helper()
	all := outcomes{}
	for _, line := range linesOf(t, name) {
		var id uint64
		var how string
		if _, err := fmt.Sscan(line, &id, &how); err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		if had, twice := all[id]; twice {
			t.Errorf("request %#x has two outcomes: %s and %s", id, had, how)
		}
		all[id] = how
	}
	return all
}

// readExecutions counts the executions by id that servants have written down.
func readExecutions(t *testing.T, name string) map[uint64]int {
	t.Helper()
	all := map[uint64]int{}
	for _, line := range linesOf(t, name) {
		var id uint64
		if _, err := fmt.Sscan(line, &id); err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		all[id]++
	}
	return all
}

// linesOf returns the whole lines of a file; a last one without its end was never
// written as far as anybody knows.
func linesOf(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	return lines[:len(lines)-1]
}

// judge compares outcomes with executions: nothing is executed twice, what was answered
// was executed, and what ended as not executed was not.
func judge(t *testing.T, ended outcomes, executed map[uint64]int) {
	t.Helper()
	for id, n := range executed {
		if n > 1 {
			t.Errorf("request %#x was executed %d times", id, n)
		}
	}
	for id, how := range ended {
		n := executed[id]
		switch how {
		case "answered":
			if n != 1 {
				t.Errorf("request %#x was answered, and executed %d times", id, n)
			}
		case "not-executed":
			if n != 0 {
				t.Errorf("request %#x ended as not executed, and was executed", id)
			}
		case "maybe-executed":
		default:
			t.Errorf("request %#x ended as %s", id, how)
		}
	}
}
