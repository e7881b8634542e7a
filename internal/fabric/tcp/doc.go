// Package tcp is the fabric provider for machines without an RDMA device: the
// semantics of a reliable connection over one TCP connection per endpoint. It is
// pure Go.
//
// # What success means
//
// A write, write-with-imm or send completes when all of its bytes were handed to
// the kernel, in posting order; a read or an atomic when its answer is in place.
// Completions of one endpoint come in posting order. If the peer refuses a
// request that has already completed, the refusal surfaces as the Status of the
// endpoint's OpDisconnect; an unsignaled one still gets its own completion while
// its entry of the send queue has not been reused.
//
// An answer to a read holds the bytes of the moment it leaves: later writes of the
// same endpoint may show in it, as between a read and a write without a fence on
// an RDMA device.
//
// # Flow
//
//	PostSend -> send queue -> flush: one writev of [header][payload]... -> socket
//	socket -> one read per turn -> receive buffer -> parse -> memory, completions
//
// PostSend builds a list of ranges over frame headers and registered memory and
// writes it with one system call. What the socket does not take stays queued
// until the poller reports it writable. Poll gives every ready endpoint a turn
// of at most one read, and a few more to one whose reads are full; headers and small payloads come through the receive
// buffer, the rest of a large payload is read into registered memory directly.
// Completions go straight into Poll's argument: nothing can overflow, an endpoint
// without room for its completion just waits for its next turn. Neither direction
// allocates per message.
//
// An endpoint without a posted receive for an arriving send or immediate stops
// reading; that holds up everything else the peer sends on it, answers to reads
// included. A peer that takes no bytes for UserTimeout is given up.
//
// # Trust
//
// Frames come from another machine and are checked field by field: a peer reaches
// only the regions of the endpoint's protection domain, whatever it sends. A request that is
// refused changes no byte, is answered with a NAK, and ends the connection. The
// bytes on the wire are not encrypted, unless Config.Security makes all connections
// mutual TLS.
//
// # TLS
//
//	PostSend -> send queue -> records of crypto/tls -> one write -> socket
//	socket -> one read per turn -> crypto/tls -> receive buffer or memory
//
// The handshake is done by Connect and by the goroutines that accept, never by an
// agent. Afterwards crypto/tls reads from and writes to buffers of the endpoint, and the
// agent moves bytes between those and the socket, so that it never blocks. It copies
// each byte, and allocates what crypto/tls does: once for each record that arrives.
// Work requests complete when the kernel has their last encrypted byte.
//
// The wire format is described in docs/wire-tcp.md and, byte by byte, at
// putHeader, address.encode and greeting.encode.
package tcp
