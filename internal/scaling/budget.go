package scaling

import "time"

// Budgets: what may not be exceeded, as the tests of many workers and peers check with
// real daemons (test/scale_test.go). They leave room for what a garbage-collected heap
// varies by.
const (
	// WorkerBudget is the daemon's memory for an attached worker without requests, in bytes.
	WorkerBudget = 256 << 10
	// WorkerGoroutines are the core's goroutines for one.
	WorkerGoroutines = 1
	// WorkersThreads are the daemon's threads for some hundreds of workers together: what the Go
	// runtime starts when many calls of the kernel take long at a time.
	WorkersThreads = 16
	// LinkBudget is the daemon's memory for a peer besides its lanes, in bytes.
	LinkBudget = 512 << 10
	// LinkGoroutines are the core's goroutines for a peer, with or without lanes.
	LinkGoroutines = 8
	// LinkFDs are the descriptors of a peer without lanes, LaneCoreFDs those of a lane's end in the core, its ring, its vault and
	// its connection, and LaneFDs those and ring and vault in the supervisor.
	LinkFDs     = 1
	LaneCoreFDs = 3
	LaneFDs     = LaneCoreFDs + 2
	// OpenBudget is how long the first call to a peer takes that has no lane yet.
	OpenBudget = 50 * time.Millisecond
	// OpenFrames are the messages between the daemons to open a lane: one each way.
	OpenFrames = 2
	// OpenCPU is the processor time of both daemons for that.
	OpenCPU = 30 * time.Millisecond
	// IdleWakes is how often a process may be woken in two seconds without work. A timer of a
	// second would do so twice; what the Go runtime does once in minutes is no timer.
	IdleWakes = 1
)
