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
//
// # Outcomes
//
// Every accepted request ends in exactly one outcome: an answer, or an error
// that says whether the request was not executed (errors.Is ErrNotExecuted) or
// may have been (ErrMaybeExecuted). An error that the handler returned is an
// ErrRemote. Requests that were refused before they were accepted (ErrNoService,
// ErrTooLarge, ErrBackpressure, ErrClosed ...) were not executed either.
//
// # Waiting
//
// A goroutine that waits for an answer sleeps in the kernel itself and is woken
// directly by the daemon. Of many that wait in one process, one leads: it sleeps
// for all and hands their answers on, so a process with thousands of waiting
// goroutines still blocks one thread.
package client
