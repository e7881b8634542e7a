// Package faultpoint lets tests kill or stop a process at a chosen step. A step is
// marked with Here and its name:
//
//	faultpoint.Here("claim.after_cas")
//
// In a build with the tag "faultpoints" a process ends, as if by the kernel's hand,
// when it comes there for the n-th time, if its environment or Arm says so. Without
// the tag Here is empty: a program has no instruction of it and not even the names.
//
// All names are in Points, and a test compares the list with the uses. See
// docs/testing.md for how to add one.
//
// The environment of a process of a build with the tag:
//
//	RDMAD_KILL_AT    what to do where, as Arm takes it
//	RDMAD_FAULT_LOG  a file to which the process appends where it has been
//	RDMAD_FAULT_ARM  a prefix of names of files that say what to do where; see Arm
package faultpoint
