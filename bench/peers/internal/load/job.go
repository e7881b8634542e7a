// Package load is what client processes do: the same for every system, so that all pay the
// same for being measured. Every answer is checked.
package load

import (
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/system"
)

// Kind is what a client process does.
type Kind string

// The kinds of jobs.
const (
	// Load sends requests or posts.
	Load Kind = "load"
	// Idle makes one call and then waits.
	Idle Kind = "idle"
	// Arrive waits until the service has counted Expect posts.
	Arrive Kind = "arrive"
)

// Job is what a client process reads from its standard input, one line of JSON each. It says when
// it is ready, waits for another line, and reports its Result.
type Job struct {
	Kind    Kind   `json:"kind"`
	System  string `json:"system"`
	Address string `json:"address"`
	// Op is the operation, Size the payload of an echo, a page or a post.
	Op   system.Op `json:"op"`
	Size int       `json:"size"`
	// Depth is how many requests are outstanding.
	Depth int `json:"depth"`
	// Duration is for how long requests are begun.
	Duration time.Duration `json:"duration_ns"`
	// Warmup is for how long before the process is ready.
	Warmup time.Duration `json:"warmup_ns"`
	// Seed makes the content of this process's messages its own.
	Seed uint64 `json:"seed"`
	// Expect is for Arrive.
	Expect uint64 `json:"expect"`
}

// need is what the session is for.
func (j *Job) need() system.Need {
	n := system.Need{Op: j.Op, Depth: j.Depth, Request: j.Size, Answer: j.Size}
	switch j.Op {
	case system.Page:
		n.Request = len(system.PageRequest(j.Size))
	case system.Post:
		n.Answer = 0
	}
	return n
}

// Report is one line that a client process writes: Ready, later Finished, and Result once it may
// write that, or Error.
type Report struct {
	Ready bool `json:"ready,omitempty"`
	// Warmed is how many messages the warm-up took.
	Warmed uint64 `json:"warmed,omitempty"`
	// Finished: all answers are there. The result waits until those of all processes are: to
	// compress the latencies takes a millisecond of a processor that others still measure on.
	Finished bool    `json:"finished,omitempty"`
	Result   *Result `json:"result,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// Result is what one process measured.
type Result struct {
	Messages uint64 `json:"messages"`
	// Mismatches counts answers with the wrong content.
	Mismatches uint64 `json:"mismatches"`
	// Begin is when the first message was sent, and End when the last answer was there, by the clock
	// of the machine (shm.Nanotime), which is that of the other processes. CPU is the processor time of the
	// process between them.
	Begin int64         `json:"begin_ns"`
	End   int64         `json:"end_ns"`
	CPU   time.Duration `json:"cpu_ns"`
	// Histogram has the latencies in ns, in HdrHistogram's V2 compressed form. Empty if there
	// are no answers.
	Histogram []byte `json:"histogram,omitempty"`
}
