// Package link is the control connection of a measurement by "rdmad perf": TCP between
// the two sides, over which they make sure that they fit together, the client says what is
// to be measured, and both exchange what connects their endpoints. It also is how a side
// knows that the other one has died: the kernel of a killed process ends its connections at
// once, and that of a machine without power is missed within KeepAlive.
//
// A message is a line: a JSON object with a kind and a body, of MaxMessage bytes at most.
// Each side begins with a greeting; one that does not fit ends the connection before
// anything else is said.
package link
