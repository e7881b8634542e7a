// Package sandbox runs two nodes and an echo service on this machine, for as
// long as a command takes, and leaves nothing behind.
//
// Sandbox starts and stops the whole (sandbox.go); Node is one daemon with its
// configuration (node.go, config.go), and Process any child whose output goes to
// a file (process.go). The test harnesses build on Node and Process too.
package sandbox
