// Package scaling says what a node costs by its configuration: memory, descriptors and
// queue pairs for so many workers, lanes and peers, and what that comes to in a fleet of
// up to ten thousand nodes. docs/scaling.md shows what it computes, a test keeps the two
// equal, and the tests of many workers and peers in package test hold real daemons
// against it.
package scaling
