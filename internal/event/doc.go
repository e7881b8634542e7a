// Package event is what the daemon has to say of trouble: a table of everything that it
// logs at the levels warn and error, each with a code that stays the same, and the log
// itself, which counts distinct errors and keeps one of them from filling the disk.
//
// A line of such a level begins with Code.On, so that it has a code and the level of the
// table; a test reads the source of the daemon and refuses others. docs/runbook.md is made
// of the table.
package event
