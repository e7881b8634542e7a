// Package perf is what the tools of "rdmad perf" have in common: a Node is a device that
// was opened for a measurement, a Session is one end of a connection between two Nodes, with
// its control link (package link), its registered memory and its way to wait for
// completions, and Client and Serve are the two sides of a run of a Tool.
//
// The client says everything that is to be measured; a server only needs to know where to
// listen and with which device. Both check it against what they and their devices can do
// before a connection is made, and refuse it with an *InputError: nothing was written then.
//
// Everything here uses the interfaces of package fabric and nothing of one provider. No order
// of writes is assumed where fabric.Caps does not promise one.
package perf
