// Package server is what a process imports to answer requests that reach the
// rdmad daemon of its node.
//
//	srv, err := server.Attach(ctx, "", server.Workers(4))
//	if err != nil { ... }
//	defer srv.Close()
//	err = srv.Handle("echo", "echo", func(c *server.Call) error {
//		return c.Reply(c.Request())
//	}, server.AnswerLikeRequest())
//	if err != nil { ... }
//	err = srv.Serve(ctx)
//
// Several processes may serve the same method; the daemon spreads requests over
// them by how many each has not finished. docs/application.md has a program that serves, attaches again
// when the daemon was restarted, and ends without an error for its callers.
//
// # Memory
//
// A handler reads the request and writes the answer in place, in slots that are
// shared with the daemon: nothing is copied. Request and answer share the same
// bytes, and processes of the same domain could change them at any time, so a
// handler that must not be fooled copies what it checks before it checks it.
//
// # Waiting
//
// A server without requests sleeps until the daemon wakes it, on one thread, however
// many workers it has. It polls for a moment before it sleeps (DefaultWait); WaitMode makes it sleep at once, or poll only.
//
// # Attaching again
//
// Serve returns an ErrClosed when the daemon has gone. To go on with the next one, Close the Server, Attach again, which is an
// ErrNotRunning until that runs, and register all methods anew: see the example "again" of Serve. Or end with an error, and have the service manager start the
// program again. A daemon that only replaces its core, after a crash or by "rdmad upgrade", has not gone.
//
// # In the core
//
// A program that is the daemon of its node (package node) has a server in the daemon's core, whose agent calls
// Inline handlers itself.
//
// # Regions
//
// A request may refer to regions of its caller: memory that the handler writes to,
// reads from and does atomic operations on, wherever the caller is, without code of
// the caller running.
//
//	srv.Handle("pages", "fetch", func(c *server.Call) error {
//		_, err := c.Region(0).WriteAt(page, 0)
//		return err
//	})
//
// # Values
//
// What a Server, Call, Stream or Region is for is made by this package only.
// Methods of a zero value of one of them may panic, and so may those of the nil that comes with an error.
package server
