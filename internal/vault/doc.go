// Package vault keeps what a daemon knows of the requests in a lane in memory that
// outlives its process: a segment that no worker is given, kept by the supervisor, and
// read by the next core.
//
// A vault has two parts. The [Journal] is the requesting end's: the requests that were
// taken from the ring, and may be on the wire. The [Records] are the answering end's:
// the requests that arrived, who has them, and the answers that the requester may still
// ask for. A lane between nodes has one of them at either end, a local lane has both.
//
// A process may die between any two stores. So each slot has one word, its head, whose
// store makes a change valid, after all that belongs to it was stored; and a change that
// takes several steps outside of the vault is noted before the first of them, so that
// the next core can finish it. Package vault only stores and loads; what a state means
// for the slots is the daemon's business.
//
// A vault is trusted as its daemon is: nobody else has it. A core of another layout does not
// adopt it: who changes what is stored changes the version of it in package version, too.
// Loading checks only what a vault of another layout would get wrong. Its types belong to one goroutine, the
// lane's agent.
package vault
