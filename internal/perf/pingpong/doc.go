// Package pingpong measures latencies: a message goes to the other side and comes back, and
// only then the next one goes.
//
// By send and by write-imm each message consumes a receive of the other side, and its
// completion tells that it is there. A plain write tells the target nothing, which looks at
// the memory instead, as perftest's does: at the last byte of the message, or, when content
// is verified, at a counter that is written behind it. That is an assumption about the order
// of writes, so it needs a device with fabric.Caps.OrderedWrites. By read there is no way
// back: the client reads the server's memory.
package pingpong
