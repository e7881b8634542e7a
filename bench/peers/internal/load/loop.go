package load

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/system"
	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/bench/latency"
)

// load makes the calls of one process.
type load struct {
	job  *Job
	need system.Need
	// start is when the run began; more says whether to begin another request.
	start time.Time
	limit time.Duration
	// next numbers the messages over warm-up and measurement.
	next atomic.Uint64
	// done lets the watch see progress.
	done atomic.Uint64

	mu         sync.Mutex // guards what follows while there are several goroutines
	finished   uint64
	mismatches uint64
	latency    *latency.Recorder
}

func newLoad(j *Job) *load { return &load{job: j, need: j.need(), latency: latency.NewRecorder()} }

// run sends requests for d, waits for their answers and forgets what was measured before.
func (l *load) run(s system.Session, d time.Duration) error {
	l.finished, l.mismatches = 0, 0
	l.latency.Reset()
	l.start, l.limit = time.Now(), d
	caller, calls := s.(system.Caller)
	pipe, pipes := s.(system.Pipe)
	poster, posts := s.(system.Poster)
	switch {
	case l.job.Op == system.Post && posts:
		return l.posts(poster)
	case calls && (l.job.Depth == 1 || !pipes):
		return l.callers(caller)
	case pipes:
		return l.window(pipe)
	}
	return fmt.Errorf("%s has no way to %s", l.job.System, l.job.Op)
}

// now returns the time since the run began. It reads one clock; time.Now reads two.
func (l *load) now() time.Duration { return time.Since(l.start) }

// request returns a message to be stamped.
func (l *load) request() []byte {
	if l.job.Op == system.Page {
		return system.PageRequest(l.job.Size)
	}
	req := make([]byte, l.job.Size)
	content.Fill(req, 0)
	return req
}

// stamp makes the request the next message.
func (l *load) stamp(req []byte) uint64 {
	stamp := content.Stamp(l.job.Seed, l.next.Add(1))
	if l.job.Op == system.Page {
		system.StampPage(req, stamp)
	} else {
		content.Restamp(req, stamp)
	}
	return stamp
}

// check counts an answer.
func (l *load) check(answer []byte, stamp uint64) {
	if !content.Intact(answer, l.need.Answer, stamp) {
		l.mismatches++
	}
	l.finished++
}

// callers makes calls from a goroutine for each request that is to be outstanding.
func (l *load) callers(s system.Caller) error {
	errs := make(chan error, l.job.Depth)
	for range l.job.Depth {
		go func() { errs <- l.calls(s) }()
	}
	var first error
	for range l.job.Depth {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (l *load) calls(s system.Caller) error {
	req, room := l.request(), make([]byte, 0, l.need.Answer)
	end := l.now()
	for first := true; first || end < l.limit; first = false {
		stamp := l.stamp(req)
		begin := l.now()
		answer, err := s.Call(req, room)
		if err != nil {
			return err
		}
		end = l.now()
		l.mu.Lock()
		l.check(answer, stamp)
		l.latency.Add(end - begin)
		l.mu.Unlock()
		l.done.Add(1)
	}
	return nil
}

// window keeps the requests outstanding from one goroutine and waits for the oldest. A request's
// latency ends when its turn has come and its answer is there.
func (l *load) window(s system.Pipe) error {
	type outstanding struct {
		stamp uint64
		begin time.Duration
	}
	req, queue := l.request(), make([]outstanding, l.job.Depth)
	begun, ended := 0, 0
	first, last := 0, 0 // the places of those in queue
	each := max(l.need.Request, l.need.Answer) > latency.Bulk
	anew := each || l.job.Depth == 1
	for now := l.now(); ; {
		for begun-ended < l.job.Depth && (begun < l.job.Depth || now < l.limit) {
			stamp := l.stamp(req)
			if anew {
				now = l.now() // as in calls: what was done with the last answer is no part of it
			}
			queue[first] = outstanding{stamp: stamp, begin: now}
			if err := s.Send(req); err != nil {
				return err
			}
			begun++
			if first++; first == l.job.Depth {
				first = 0
			}
			if !anew && begun-ended < l.job.Depth {
				now = l.now() // a window that fills up; else the time of the last answer
			}
		}
		if ended == begun {
			return nil
		}
		answer, waited, err := s.Receive()
		if err != nil {
			return err
		}
		if waited || each || ended%latency.ClockEvery == 0 {
			now = l.now()
			l.done.Store(l.next.Load())
		}
		o := &queue[last]
		l.check(answer, o.stamp)
		l.latency.Add(now - o.begin)
		ended++
		if last++; last == l.job.Depth {
			last = 0
		}
	}
}

// postClock is how many posts share a look at the clock.
const postClock = 16

// posts sends messages one way.
func (l *load) posts(s system.Poster) error {
	req := l.request()
	for now := l.now(); l.finished < postClock || now < l.limit; {
		l.stamp(req)
		if err := s.Post(req); err != nil {
			return err
		}
		if l.finished++; l.finished%postClock == 0 {
			now = l.now()
			l.done.Store(l.finished)
		}
	}
	return s.Flush()
}
