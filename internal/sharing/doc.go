// Package sharing is how the ring of an out lane is shared among the workers that use it:
// what each has in the journal, its quota, and the share that is published while the ring
// is crowded. It knows the ring, and of workers no more than their attach ids; whom to wake
// when there is room, and how much workers may have in all their rings, is the agent's
// business. See docs/decisions/0007-shares-of-a-ring.md.
//
// A Ring belongs to the thread of the agent that has the lane, and allocates nothing.
package sharing
