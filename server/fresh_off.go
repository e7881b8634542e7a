//go:build !race

package server

// freshCalls makes a Call for each request, instead of one for each worker.
const freshCalls = false
