package bench

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
)

// Workload is what a run does.
type Workload string

// The workloads.
const (
	// Call echoes messages in a closed loop.
	Call Workload = "call"
	// Stream sends large requests and gets 8 bytes for each.
	Stream Workload = "stream"
	// Pages sends small requests and gets large answers.
	Pages Workload = "pages"
	// OneWay posts messages that are not answered, and ends when the last one
	// has arrived.
	OneWay Workload = "oneway"
)

// DefaultSize returns the message size of a run that says nothing about it.
func (w Workload) DefaultSize() int {
	if w == Pages {
		return 8192
	}
	return 64
}

// method returns the target without the node.
func (w Workload) method() string {
	switch w {
	case Call:
		return ServiceEcho + "/" + MethodEcho
	case Stream:
		return ServiceBench + "/" + MethodSink
	case Pages:
		return ServiceBench + "/" + MethodPage
	}
	return ServiceBench + "/" + MethodOneWay
}

// Spec says what to measure.
type Spec struct {
	// Workload is what the worker processes do.
	Workload Workload `json:"workload"`
	// Socket is where the daemon listens; empty means the client library's
	// default.
	Socket string `json:"socket"`
	// Target is the node that answers. Empty: any that does.
	Target string `json:"target"`
	// Size is the payload of the message that the workload is about, in bytes.
	Size int `json:"size_bytes"`
	// Clients is the number of worker processes.
	Clients int `json:"clients"`
	// Depth is how many requests each process keeps outstanding; 0 for OneWay.
	Depth int `json:"depth"`
	// Count is the number of messages of all processes together. Zero: as many
	// as fit into Duration.
	Count uint64 `json:"count"`
	// Duration is how long to measure when Count is zero.
	Duration time.Duration `json:"duration_ns"`
	// Wait is how the worker processes wait for answers.
	Wait client.Mode `json:"wait"`
	// Warmup is how long each process works before the measurement.
	Warmup time.Duration `json:"warmup_ns"`
}

// Limits of a Spec. Every client is a process, and every outstanding request
// holds slots of a ring that has a few thousand.
const (
	maxClients  = 4000
	maxDepth    = 65536
	maxSize     = 1 << 30
	maxDuration = 24 * time.Hour
)

// Check reports what is wrong with the specification.
func (s *Spec) Check() error {
	switch {
	case strings.Contains(s.Target, "/"):
		node, _, _ := strings.Cut(s.Target, "/")
		return fmt.Errorf("target %q: want the name of a node, such as %q: the service and its method go with the workload", s.Target, cmp.Or(node, "b"))
	case s.Size < 0 || s.Size > maxSize:
		return fmt.Errorf("size %d: want 0 to %d bytes", s.Size, maxSize)
	case s.Clients < 1 || s.Clients > maxClients:
		return fmt.Errorf("%d clients: want 1 to %d", s.Clients, maxClients)
	case s.Workload == OneWay && s.Depth != 0:
		return fmt.Errorf("depth %d: nothing is outstanding that has no answer", s.Depth)
	case s.Workload != OneWay && (s.Depth < 1 || s.Depth > maxDepth):
		return fmt.Errorf("depth %d: want 1 to %d", s.Depth, maxDepth)
	case s.Count == 0 && (s.Duration <= 0 || s.Duration > maxDuration):
		return fmt.Errorf("duration %v: want more than 0s and at most %v", s.Duration, maxDuration)
	case s.Warmup < 0 || s.Warmup > maxDuration:
		return fmt.Errorf("warm-up %v: want 0s to %v", s.Warmup, maxDuration)
	case s.Count > 0 && s.Count < uint64(s.Clients):
		return fmt.Errorf("%d messages for %d clients: want at least one each", s.Count, s.Clients)
	}
	// The kernel may end any process of the machine for the sake of one that takes too much.
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return fmt.Errorf("the machine's memory: %w", err)
	}
	most := machine.Totalram * uint64(machine.Unit) / 2
	if bytes := uint64(s.Clients) * uint64(max(s.Depth, 1)) * uint64(s.Size); bytes > most {
		return fmt.Errorf("%d clients with %d messages of %d bytes each: %d bytes, and half of this machine's memory is %d", s.Clients, max(s.Depth, 1), s.Size, bytes, most)
	}
	return nil
}

// address returns the target of the workload's method as the client library
// wants it.
func (s *Spec) address(method string) string {
	if s.Target == "" {
		return method
	}
	return s.Target + "/" + method
}

// job is what a worker process reads from its standard input: the run and its
// own share of it.
type job struct {
	Spec
	// Share is this process's part of Count.
	Share uint64 `json:"share"`
	// Seed makes the content of this process's messages its own.
	Seed uint64 `json:"seed"`
	// Progress asks for a report every second.
	Progress bool `json:"progress"`
}

// share returns how many of count messages the i-th of n processes sends.
func share(count uint64, i, n int) uint64 {
	part := count / uint64(n)
	if uint64(i) < count%uint64(n) {
		part++
	}
	return part
}

// report is one line that a worker process writes to its standard output:
// Ready once, Done once per second, and then Result or Error.
type report struct {
	// Ready says that the warm-up is over; the process waits for a line on its
	// standard input to begin.
	Ready bool `json:"ready,omitempty"`
	// Warmed is how many messages the warm-up took.
	Warmed uint64 `json:"warmed,omitempty"`
	// Done is how many messages have been finished so far.
	Done uint64 `json:"done,omitempty"`
	// Result ends a run.
	Result *workerResult `json:"result,omitempty"`
	// Error ends a run that failed.
	Error string `json:"error,omitempty"`
	// Unserved says that it failed because nobody serves the workload's method.
	Unserved bool `json:"unserved,omitempty"`
}

// workerResult is what one process measured.
type workerResult struct {
	Messages uint64 `json:"messages"`
	// Mismatches counts answers with the wrong content.
	Mismatches uint64 `json:"mismatches"`
	// Begin is when the first message was sent, and End when the last answer was there, by the clock
	// of the machine (shm.Nanotime), which is that of the other processes.
	Begin int64 `json:"begin_ns"`
	End   int64 `json:"end_ns"`
	// CPU is the processor time, user and system, spent in that time.
	CPU time.Duration `json:"cpu_ns"`
	// Histogram has the latencies in ns, in HdrHistogram's V2 compressed form.
	// Empty for OneWay.
	Histogram []byte `json:"histogram,omitempty"`
	// Interrupted: the process was told to end before it had made all its calls.
	Interrupted bool `json:"interrupted,omitempty"`
}
