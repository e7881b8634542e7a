// Package guard has no code, only tests: they count what messages cost, in system calls,
// wake-ups, allocations, copies and groups, and fail when it is more than it was. Counts
// are the same on a slow machine and on a busy one, unlike times. See docs/testing.md,
// "Counts"; the bounds are in table_test.go.
package guard
