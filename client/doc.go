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
// Method.CallFunc reads the answer where it has arrived, and so does Method.GoInPlace, of many requests
// at a time. docs/application.md has a table of which call is for what, and programs that attach
// again when the daemon was restarted.
//
// # Outcomes
//
// Every accepted request ends in exactly one outcome: an answer, or an error
// that says whether the request was not executed (errors.Is ErrNotExecuted) or
// may have been (ErrMaybeExecuted). An error that the handler returned is an
// ErrRemote, and an answer that is too large for its room an ErrTooLarge: these were
// executed. Requests that were refused before they were accepted (ErrNoService,
// ErrTooLarge, ErrBackpressure, ErrClosed ...) were not executed either.
//
// Requests that may be executed more than once need not care: of a method with the option
// Idempotent the library sends them again, elsewhere if need be, until they have an answer.
//
// Method.Post sends a message without an outcome, Method.PostConfirmed one whose outcome
// only says whether it was executed.
//
// # Attaching again
//
// The connection ends with the daemon, and is not made again by itself: see Conn.Done, and Dial of grpcx for one of gRPC
// that is. A daemon that only replaces its core, after a crash or by "rdmad upgrade", has not gone.
//
// # Large messages and streams
//
// Requests and answers may have up to 1 GiB: what does not fit the slots of a ring
// travels in parts, or through a region, and is put together again. Method.Stream begins
// an exchange of many messages with one handler.
//
// # Regions
//
// What handlers are to read or change in place lies in a region: memory of this
// process that a request gives its handler access to.
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
// # Order
//
// Requests are not ordered, unless a variant of the method says so for those with the
// same key:
//
//	m = m.With(client.Ordered(account))
//
// They are then executed one after the other, in the order in which they were sent, by
// one process of the service, while those with other keys run.
//
// # Waiting
//
// A goroutine that waits for an answer sleeps in the kernel itself and is woken
// directly by the daemon. Of many that wait in one process, one leads: it sleeps
// for all and hands their answers on, so a process with thousands of waiting
// goroutines still blocks one thread. Before it sleeps it polls for a moment, as long as
// that pays and there are processors to spare (DefaultWait); WaitMode makes it sleep at
// once, or poll only.
//
// # Values
//
// What a Conn, Method, Future, Request, Stream or Region is for is made by this package only.
// Methods of a zero value of one of them may panic, and so may those of the nil that comes with an error.
package client
