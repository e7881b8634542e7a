// Package blast measures bandwidth: messages go one way, as many at a time as a window
// allows.
//
// A send, and a write with an immediate, consumes a receive of the server's, so the server
// gives the client credits: at first as many as it has posted receives, and then, by a
// write-imm of its own, the number of the first message that it has not got yet. No more than
// that number plus the window is sent, so a receive is always there when a message arrives,
// and no device has to say that its receiver is not ready. Writes with an immediate may arrive
// in any order; a credit covers a message only when all before it are there.
//
// Plain writes and reads need nobody's consent; the send queue bounds them. Behind plain
// writes comes a read, whose completion says that they are in the server's memory: only then
// the clock stops.
package blast
