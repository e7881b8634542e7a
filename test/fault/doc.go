// Package fault kills, and stops, real processes at every step that internal/faultpoint
// has a name for, beside real daemons, and checks what becomes of their slots, of the
// requests of others, and that nothing is executed twice. It has only tests, and they
// need the build tag "faultpoints"; see docs/testing.md.
package fault
