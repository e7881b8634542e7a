// Package benchcompare has no code: compare.sh, which make bench-compare runs, and its
// test.
package benchcompare
