// Package verbs is the fabric provider for RDMA devices: reliable-connection queue
// pairs of libibverbs, reached through cgo.
//
// It is compiled in with the build tag verbs, which needs cgo and the headers of
// libibverbs and librdmacm. Without the tag the package still builds: New and
// Devices then return fabric.ErrNotSupported with the way to a build that has it.
package verbs
