// Package config turns rdmad's TOML configuration file into a typed value that
// has been checked as a whole.
//
// # One table
//
// Every key is described once, in the table of sections.go: its meaning, its
// range, its default, how its value is read and how it is printed. Decoding,
// Default, Example (the shipped config.toml) and JSON are all driven by that
// table, so they cannot disagree.
//
// # Errors
//
// A file is either accepted completely or refused with all of its problems at
// once, each with file, line, key and reason, sorted by line. Unknown keys are
// problems. Only a file that is not TOML at all stops at its first error,
// because nothing after it can be trusted. The TOML decoder does not tell where
// a good key stands, so lines.go finds the lines with a small scanner of its
// own.
//
// The result depends on the machine in three documented places: the name of the
// node defaults to the host name, an empty domain admits the user that runs the
// daemon, and names of users and groups are looked up.
package config
