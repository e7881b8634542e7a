// Package stages makes stages of what the two nodes of a request know of it that somebody
// follows: how long it was where. What workers and peers say is cut to what can be, so that
// stages are never negative, and add up.
//
// When something happens is noted by agents; this package has no clock and no state.
package stages
