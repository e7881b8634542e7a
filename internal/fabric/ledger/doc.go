// Package ledger is what providers over a library in C (verbs, libfabric) keep of the work that
// they have handed down, so that each can be about its library only: work requests by the position
// that comes back with their completions, endpoints by the number that comes back with it, news
// from other goroutines, and completions on their way to the caller of Poll.
//
// Members and News may be used by any goroutine. Ring and Delivery belong to the owner of the
// completion queue, allocate nothing in steady state and take no lock.
package ledger
