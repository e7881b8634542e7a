// Package attach is the control protocol between a worker process and the
// daemon of its node: JSON messages over a SOCK_SEQPACKET Unix socket, with the
// descriptors of shared-memory segments as ancillary data. Nothing of the data
// path goes through it. Both sides use this package; docs/protocol.md describes
// the messages.
//
// The connection is also the lifeline: when it ends, the daemon knows from the
// kernel that the worker is gone, and a worker knows that its daemon is.
package attach
