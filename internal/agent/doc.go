// Package agent moves messages. An Agent is one locked OS thread that does everything that
// is per message, for the domains that it has: its duty cycle polls completions, takes
// published requests, sends groups, delivers what arrives, and wakes workers. It allocates
// nothing and takes no lock for a message; what it does once, for a lane, a worker or an
// answer that nobody takes, may, and so may inline handlers.
//
//   - A Domain (domain.go, domainlanes.go, worker.go, dispatch.go) is a domain's lanes, workers and methods.
//
//   - An OutLane (outlane.go) is the requesting end of a lane, with the journal of what was
//     sent (journal.go); an InLane (inlane.go) is the answering end, with the mirror of the
//     ring. A local lane is both, over one ring, without fabric. Each end of a lane that
//     another node has the other end of has a LaneEndpoint (post.go) while it is up.
//
//   - A Method (method.go, turns.go, order.go) has the requests that wait for its workers.
//
//   - A Peer (peer.go, mover.go) is a node whose regions handlers read and write: a mover
//     carries out what they ask for (ops.go, activeend.go), and does it again over another
//     connection when one is lost (redo.go).
//
//   - A Tracer (tracer.go) follows requests for tools.
//
// Package daemon's conductor does all else. It changes what an agent owns only by commands,
// which are closures that the agent runs between two cycles (command.go): that is what the
// exported fields are for. Unless it says otherwise, nothing here may be used by another
// goroutine while the agent runs. What runs on an agent takes none of the conductor's locks
// but a few that are held for a moment, never while a command is waited for (package daemon
// names them with its lock order): so a command may be waited for with any other one held.
// Agents tell of trouble by functions that they were given, which start goroutines.
package agent
