// Package client is what a process imports to call services through the rdmad
// daemon of its node.
//
// Attach once, call from any number of goroutines:
//
//	conn, err := client.Attach(ctx, "")
//	if err != nil { ... }
//	defer conn.Close()
//	answer, err := conn.Call(ctx, "b/echo/echo", []byte("hello"))
//
// A target is "node/service/method", or "service/method" for any node that
// serves it (this one first). Look a hot target up once with Conn.Method and
// use the Method's calls, which allocate nothing when given room for the answer.
// Method.CallFunc reads the answer where it has arrived.
//
// # Outcomes
//
// Every accepted request ends in exactly one outcome: an answer, or an error
// that says whether the request was not executed (errors.Is ErrNotExecuted) or
// may have been (ErrMaybeExecuted). An error that the handler returned is an
// ErrRemote. Requests that were refused before they were accepted (ErrNoService,
// ErrTooLarge, ErrBackpressure, ErrClosed ...) were not executed either.
//
// # Regions
//
// What is too large for a message, or is to be changed in place, lies in a region:
// memory of this process that a request gives its handler access to.
//
//	region, err := conn.AllocRegion(ctx, 16<<20)
//	if err != nil { ... }
//	defer region.Free()
//	ref, err := region.Ref(0, region.Len(), client.MayWrite)
//	if err != nil { ... }
//	_, err = conn.CallRegions(ctx, "b/pages/fetch", []byte("1-4096"), ref)
//
// When the call returns its answer the bytes are there. docs/semantics.md says what
// may be relied on otherwise.
//
// # Waiting
//
// A goroutine that waits for an answer sleeps in the kernel itself and is woken
// directly by the daemon. Of many that wait in one process, one leads: it sleeps
// for all and hands their answers on, so a process with thousands of waiting
// goroutines still blocks one thread.
package client
