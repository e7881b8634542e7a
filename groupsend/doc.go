// Package groupsend turns published slots into groups: consecutive messages, of
// whichever processes, that one write-with-immediate carries to the peer. It
// plans groups of requests out of a ring and groups of answers out of finished
// slots, and encodes the immediate.
//
// A group ends where the next slot holds no finished message. Unless it is asked
// for (Delay), nothing waits for a group to grow: an idle lane sends single messages
// at once, and under load groups grow by themselves, because messages gather while
// the sender is busy.
package groupsend
