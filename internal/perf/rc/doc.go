// Package rc does once, step by step, what a reliable connection is for: it connects two ends
// by an exchange over TCP, says what they are made of, and moves the same number of bytes by a
// send, an RDMA write and an RDMA read, in both directions. Both sides compare every byte after
// each step, and tell each other a digest of what they have seen.
//
// It is for finding out what does not work: each wait has a limit of its own, and an error names
// the step, the operation, and what was waited for.
package rc
