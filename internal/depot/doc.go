// Package depot keeps descriptors for a process that may die at any moment. The
// supervisor holds a Store: descriptors with a key and a few bytes of JSON. The core
// is its Client, over a socket that it is handed when it starts: it is given all that
// the core before it has put, and then says what is new, changed or gone.
//
// Nothing is acknowledged. Once a call of the Client has returned, the message and its
// descriptors are in the socket, where they survive the death of the sender; the
// supervisor takes everything out before it starts the next core.
//
// What is kept is memory, sockets and pidfds. No descriptor of a device is ever put,
// and the supervisor never maps anything.
package depot
