// Package verbs is the fabric provider for RDMA devices: reliable-connection queue
// pairs of libibverbs, reached through cgo.
//
// It is compiled in with the build tag verbs, which needs cgo and the headers of
// libibverbs and librdmacm. Without the tag the package still builds: New and
// Devices then return fabric.ErrNotSupported with the way to a build that has it.
//
// # Crossings into C
//
// PostSend, PostRecv and Poll are one call each for a whole list. What they pass are
// arrays of plain structures that are made with the endpoint and the queue; nothing
// is allocated per call on either side. C keeps no pointer to Go memory, except that
// the device knows the registered memory, which is pinned as long.
//
// # Accounting
//
// The provider keeps the work requests that are outstanding, in order. A completion
// of the device retires its work request and the unsignaled ones before it, and
// frees their room. So that there is always a completion to come, a work request is
// signaled unasked when half of the queue is not.
//
// A completion queue cannot overflow: every endpoint reserves room for all of its
// work requests, and the queue is enlarged first.
//
// # Connections
//
// With ConnectOOB the addresses that the daemons exchange hold what the queue pairs
// need. A queue pair drops messages that come before it is ready, and the sender only
// notices by a timeout; so each end tells the other when it is ready, in datagrams
// over the same device that are repeated until they are answered, and Connect returns
// when it has heard the peer. An end that closes says so in the same way, three
// times. If none of that arrives, or the peer's machine has died, the end shows in the
// next work request that needs the peer, when its retries are used up.
//
// With ConnectCM librdmacm negotiates between queue pairs that are made here; the
// private data of a request names the endpoint by a token from its address. The
// queue pairs, regions and queues belong to the provider's own context of the
// device, not to librdmacm's.
//
// # The end of a connection
//
// Close destroys the queue pair before it returns: from then on the device touches
// no memory for it, and regions and protection domains can be closed at once. What
// was outstanding is reported as flushed by the next Poll, from the provider's
// accounts. When a connection fails, the queue pair goes into its error state and the
// device flushes what is outstanding; a marker behind the last work request shows
// when it is through, and OpDisconnect follows. Its Status is that of the first
// failure: StatusFlushed if the peer closed the connection, StatusFatal if this
// side's device refused a request of the peer.
//
// A queue pair may have refused a request of the peer without a completion to show
// for it. That side learns of it by a posted receive that is flushed, by an
// asynchronous event, or from the peer.
package verbs
