//go:build race

package server

// freshCalls makes a Call for each request, so that the race detector and ErrExpired
// find every handler that uses its Call after it has returned.
const freshCalls = true
