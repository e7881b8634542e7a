// Package bench measures an rdmad from the outside, as its users see it: worker
// processes attach to the daemon of their node and make calls.
//
// Four workloads are known. Call is a closed loop of echoes, Stream sends
// requests of a given size that get 8 bytes back, Pages sends small requests
// that get answers of a given size, and OneWay posts messages without answers.
//
// Serve is the service that answers them, Run the parent that starts the worker
// processes and adds up what they report, and Worker the body of such a process.
// Every answer's content is checked: each message carries a number that nobody
// can guess at both ends of a pattern that both sides know (package content).
package bench
