// Package slots is the shared-memory slot table of a lane: where requests are
// claimed, published, sent, answered and freed.
//
// A ring is a table of slots with a rotating cursor, not a FIFO: a slot that a
// slow call or a stopped process keeps busy is skipped, and everybody else goes
// on. Each slot has one 64-bit word that says who owns it, in what state, and
// in which generation (ticket); claiming is one compare-and-swap per slot that
// writes owner and ticket together, so there is no instant at which a slot is
// taken but nobody owns it. That is what makes the death of a process at any
// instruction repairable, without a lock in shared memory and without a timer.
//
// The package has no goroutines and does no I/O. It defines the layouts of the
// three kinds of segment (docs/layout.md): Ring for lanes, Hints for workers,
// Bells for domains.
//
// # Trust
//
// Workers of one domain share a ring and may write any byte of it. The daemon
// therefore keeps geometry, journal and records in private memory, loads a word
// once, checks the copy, and changes it with a compare-and-swap against that
// copy. Nothing in this package panics or loops without bound on what it finds.
//
// # States of a slot word (the requester's side)
//
//	FREE --claim--> CLAIM, FOLLOW... --publish--> PUB --take--> TAKEN --answer--> ANS --consume--> FREE
//	                CLAIM --abort--> FREE         PUB --revoke--> CLAIM
//
// FOLLOW marks the second and later slots of a run and stays until the run is freed.
package slots
