// Package daemon is the core of rdmad: the process that owns the fabric and moves
// messages. Package supervisor starts it.
//
//   - The conductor (conductor.go, worker.go, link.go ...) does everything that
//     is not per message: attaching workers, resolving targets, opening lanes,
//     talking to peers. It is ordinary Go: goroutines, a mutex, JSON.
//
//   - Agents (package agent) do everything that is per message. The conductor changes what
//     they own only by commands.
//
//   - A tenant (tenants.go) is a service in the core's process. It attaches like any
//     other; agents may call its handlers themselves.
//
// Lock order, from the outside in:
//
//  1. lent.turn of a worker, then statusRounds.turn and, for a moment, statusRounds.mu;
//  2. conductor.serving (out of service), conductor.rotating, domain.using, domain.making;
//  3. outgoing.mu, worker.mu, region.mu, session.publishing;
//  4. bulk.mu, also with domain.making or region.mu held, and conductor.mapping, with worker.mu held or nothing;
//  5. session.writing, with which a peer is written to, and conductor.mu, neither with the other held;
//  6. laneInfo.mu, session.mu, lent.mu, conductor.identifying, which are held for a moment or, as laneInfo.mu, while
//     something is sent, and spiller.mu, which is held while memory is made and something is sent, and so not taken with conductor.mu held;
//  7. bulk.noting, conductor.spawning, peerClock.mu, worker.askMu and the mu of a traceRun, which are held for a moment, and with which no other is taken.
//
// There is one exception: who releases a region disposes of its domain with region.mu held, and waits there for
// domain.using. So nobody who uses the lanes of a domain takes the region.mu of one of its regions.
//
// A command of an agent may be waited for with one of them held, but not with one that agents take: session.mu, to see whether a
// session has ended, conductor.spawning, to start a goroutine, and peerClock.mu.
package daemon
