// Package perfrun runs the tools of "rdmad perf" from a command line: it chooses the fabric
// that the flags ask for, is a server or a client or both, and writes what came out.
package perfrun
