//go:build race

package client

// copyFirst has a request copied before its future can be found. The goroutine that takes the answer, into
// memory that may be the request's, runs after that copy in any case: the answer is made of it, in other
// processes, of which the race detector does not know.
const copyFirst = true
