// Package peerauth finds out which node is at the other end of a connection. With tls.mode = "required"
// certificates say so, which both ends show by TLS 1.3; without, nodes believe each other's names.
// What it does not take it explains: a Refusal says what came, what was expected, and what to do about it, and
// Refusals remembers them.
//
// The owner decides besides whether that node is one of its peers.
package peerauth
