package bench

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmad/rdmad/client"
)

// load makes the calls of one process, from one goroutine.
type load struct {
	method *client.Method
	depth  int
	seed   uint64
	// request is the message, to be stamped anew for each call.
	request []byte
	stamp   func(p []byte, stamp uint64)
	// check reports whether an answer is the right one for the stamp.
	check func(answer []byte, stamp uint64) bool
	// answerSize is how large answers are.
	answerSize int
	post       bool

	// next numbers the messages over warm-up and measurement.
	next       uint64
	done       atomic.Uint64
	mismatches uint64
	latency    *hdrhistogram.Histogram
}

// newLoad prepares the messages of the job's workload.
func newLoad(j *job, m *client.Method) *load {
	size := j.Size
	l := &load{method: m, depth: j.Depth, seed: j.Seed, stamp: restamp, post: j.Workload == OneWay}
	switch j.Workload {
	case Pages:
		l.method = m.With(client.AnswerSize(size))
		l.answerSize = size
		l.request = make([]byte, pageRequestSize)
		binary.LittleEndian.PutUint32(l.request, uint32(size))
		l.stamp = func(p []byte, stamp uint64) { binary.LittleEndian.PutUint64(p[pageSizeSize:], stamp) }
		l.check = func(a []byte, stamp uint64) bool { return intact(a, size, stamp) }
	case Stream:
		l.answerSize = countSize
		l.request = make([]byte, size)
		fill(l.request, 0)
		// The service has checked the request; it cannot have counted less
		// than this one.
		l.check = func(a []byte, _ uint64) bool { return len(a) == countSize && binary.LittleEndian.Uint64(a) > 0 }
	default:
		l.answerSize = size
		l.request = make([]byte, size)
		fill(l.request, 0)
		l.check = func(a []byte, stamp uint64) bool { return intact(a, size, stamp) }
	}
	l.reset()
	return l
}

// reset forgets what was measured.
func (l *load) reset() {
	l.done.Store(0)
	l.mismatches = 0
	l.latency = newHistogram()
}

// run makes count calls or, if that is zero, as many as it begins within d.
func (l *load) run(ctx context.Context, count uint64, d time.Duration) error {
	more := func(begun uint64, _ time.Time) bool { return begun < count }
	if count == 0 {
		end := time.Now().Add(d)
		more = func(_ uint64, now time.Time) bool { return now.Before(end) }
	}
	switch {
	case l.post:
		return l.posts(ctx, more)
	case l.depth == 1:
		return l.calls(ctx, more)
	}
	return l.window(ctx, more)
}

// numbered stamps the request with the number of the next message.
func (l *load) numbered() (req []byte, stamp uint64) {
	stamp = stampOf(l.seed, l.next)
	l.next++
	l.stamp(l.request, stamp)
	return l.request, stamp
}

// calls makes one call after the other.
func (l *load) calls(ctx context.Context, more func(uint64, time.Time) bool) error {
	answer := make([]byte, 0, l.answerSize)
	begin := time.Now()
	for begun := uint64(0); more(begun, begin); begun++ {
		req, stamp := l.numbered()
		begin = time.Now()
		a, err := l.method.CallInto(ctx, req, answer)
		if err != nil {
			return err
		}
		l.finish(a, stamp, time.Since(begin))
	}
	return nil
}

// outstanding is a request whose answer has not been seen.
type outstanding struct {
	future *client.Future
	stamp  uint64
	begin  time.Time
}

// window keeps depth requests outstanding and waits for the oldest. A request's
// latency ends when its turn to be waited for has come and its answer is there.
func (l *load) window(ctx context.Context, more func(uint64, time.Time) bool) error {
	queue := make([]outstanding, l.depth)
	var begun, ended uint64
	defer func() {
		// After an error: nobody else waits for these.
		for ; ended < begun; ended++ {
			queue[ended%uint64(l.depth)].future.Cancel()
		}
	}()
	for now := time.Now(); ; {
		for begun-ended < uint64(l.depth) && more(begun, now) {
			req, stamp := l.numbered()
			o := &queue[begun%uint64(l.depth)]
			o.stamp, o.begin = stamp, now
			var err error
			if o.future, err = l.method.Go(ctx, req); err != nil {
				return err
			}
			begun++
			if begun-ended < uint64(l.depth) {
				now = time.Now() // a window that fills up; else the time of the last answer
			}
		}
		if ended == begun {
			return nil
		}
		o := &queue[ended%uint64(l.depth)]
		_, _, settled := o.future.Result()
		a, err := o.future.Wait(ctx)
		if err != nil {
			return err
		}
		o.future.Release()
		// An answer that was there already came in with the last one that was
		// waited for. The clock costs a good part of a call, so it is read
		// only now and then for those.
		if !settled || ended%clockEvery == 0 || l.bulky() {
			now = time.Now()
		}
		l.finish(a, o.stamp, now.Sub(o.begin))
		ended++
	}
}

// clockEvery is how many answers that came in together share a look at the clock.
const clockEvery = 8

// bulky reports whether the copying of a message takes long enough that every
// answer needs a look at the clock of its own.
func (l *load) bulky() bool { return max(len(l.request), l.answerSize) > 1024 }

// posts sends messages one way.
func (l *load) posts(ctx context.Context, more func(uint64, time.Time) bool) error {
	now := time.Now()
	for begun := uint64(0); more(begun, now); begun++ {
		req, _ := l.numbered()
		if err := l.method.Post(ctx, req); err != nil {
			return err
		}
		l.done.Add(1)
		// The clock costs as much as a good part of a post.
		if begun%16 == 0 {
			now = time.Now()
		}
	}
	return nil
}

func (l *load) finish(answer []byte, stamp uint64, latency time.Duration) {
	if !l.check(answer, stamp) {
		l.mismatches++
	}
	// Out of range only beyond 100 s, which the stall limit excludes.
	_ = l.latency.RecordValue(int64(latency))
	l.done.Add(1)
}
