// Package exchange is what the client and server libraries say to each other when
// one request and its answer are not enough: requests and answers that fit no run of
// slots, and streams. To the daemons all of it is ordinary requests, with the flag
// "part" in their headers; docs/protocol.md describes it under "Exchanges".
//
// An exchange is two streams of bytes, up from the requester and down from the
// handler's process. The requester moves both, part by part: a part that it sends
// carries bytes up, the answer to a part carries bytes down. Each side says how far
// the other may go on (credit), so that neither buffers more than it has room for.
//
// The package has the layout of parts (PartRequest, PartAnswer), messages in a stream
// of bytes (Frame, Inbox) and the sending side's buffer (Outbox). Nothing here waits
// or locks; the libraries do.
package exchange
