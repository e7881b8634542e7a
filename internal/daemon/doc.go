// Package daemon is the core of rdmad: the process that owns the fabric and moves
// messages. Package supervisor starts it.
//
// # Roles
//
//   - The conductor (conductor.go, worker.go, link.go ...) does everything that
//     is not per message: attaching workers, resolving targets, opening lanes,
//     talking to peers. It is ordinary Go: goroutines, a mutex, JSON.
//
//   - An agent (agent.go) is one locked OS thread that does everything that is
//     per message, for the domains assigned to it: its duty cycle polls
//     completions, takes published requests, sends groups, delivers what
//     arrives, and wakes workers. It allocates nothing and takes no lock for a message; what it
//     does once, for a lane, a worker or an answer that nobody takes, may, and so may inline handlers.
//
//   - An out lane (outlane.go) is the requesting end of a lane, with the journal
//     of what was sent; an in lane (inlane.go) is the answering end, with the
//     mirror of the ring. A local lane is both, over one ring, without fabric.
//
//   - A tenant (tenants.go) is a service in the core's process. It attaches like any
//     other; agents may call its handlers themselves (inline.go).
//
// The conductor changes what an agent owns only by commands, which are closures
// that the agent runs between two cycles (command.go); an agent tells the
// conductor of trouble by starting a goroutine. What runs on an agent takes none
// of the conductor's locks, so a command may be waited for with one held. Lock
// order: outgoing.mu and domain.making before conductor.mu, worker.mu alone.
package daemon
