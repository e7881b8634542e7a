package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one problem of a configuration file.
type Error struct {
	// File is the name the file was parsed under.
	File string
	// Line is where the problem is, from 1. A problem of a key that the file
	// does not have is reported at its table's line, or at line 1. Zero if the
	// problem is not in a file: File then names the variable or the flag, of Key or of
	// what Key does not go with.
	Line int
	// Key is the path of the key, such as "node.listen" or
	// "class[1].slot_size" (elements count from 0). Empty when the file is not
	// valid TOML and no key can be named.
	Key string
	// Reason says what is wrong and, where that is short, what would be right.
	Reason string
}

// Error formats the problem as "file:line: key: reason", without what there is not.
func (e Error) Error() string {
	switch {
	case e.Line == 0 && e.Key == "":
		return e.File + ": " + e.Reason
	case e.Line == 0:
		return fmt.Sprintf("%s: %s: %s", e.File, e.Key, e.Reason)
	case e.Key == "":
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, e.Key, e.Reason)
}

// Errors is every problem of a configuration file, sorted by line. Parse and
// Load return it, never empty, when they could read the file but refuse it.
type Errors []Error

// Error formats the problems one per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single problems, for errors.As.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}

// sorted orders the problems by line. Problems are found by walking maps, so the
// key and the reason break ties to make the order the same each time.
func (e Errors) sorted() Errors {
	slices.SortFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Reason, b.Reason))
	})
	return e
}
