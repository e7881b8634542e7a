package bench

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/bench/latency"
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
	next uint64
	// start is when the run began.
	start time.Time
	// finished counts the messages that are done, and done, for other
	// goroutines, lags behind it a little.
	finished   uint64
	done       atomic.Uint64
	mismatches uint64
	latency    *latency.Recorder
}

// newLoad prepares the messages of the job's workload.
func newLoad(j *job, m *client.Method) *load {
	size := j.Size
	l := &load{method: m, depth: j.Depth, seed: j.Seed, stamp: content.Restamp, post: j.Workload == OneWay, latency: latency.NewRecorder()}
	switch j.Workload {
	case Pages:
		l.method = m.With(client.AnswerSize(size))
		l.answerSize = size
		l.request = make([]byte, pageRequestSize)
		binary.LittleEndian.PutUint32(l.request, uint32(size))
		l.stamp = func(p []byte, stamp uint64) { binary.LittleEndian.PutUint64(p[pageSizeSize:], stamp) }
		l.check = func(a []byte, stamp uint64) bool { return content.Intact(a, size, stamp) }
	case Stream:
		l.answerSize = countSize
		l.request = make([]byte, size)
		content.Fill(l.request, 0)
		// The service has checked the request; it cannot have counted less
		// than this one.
		l.check = func(a []byte, _ uint64) bool { return len(a) == countSize && binary.LittleEndian.Uint64(a) > 0 }
	default:
		l.answerSize = size
		l.request = make([]byte, size)
		content.Fill(l.request, 0)
		l.check = func(a []byte, stamp uint64) bool { return content.Intact(a, size, stamp) }
	}
	return l
}

// reset forgets what was measured.
func (l *load) reset() {
	l.finished = 0
	l.done.Store(0)
	l.mismatches = 0
	l.latency.Reset()
}

// run makes count calls or, if that is zero, as many as it begins within d.
func (l *load) run(ctx context.Context, count uint64, d time.Duration) error {
	l.start = time.Now()
	defer l.settle()
	more := func(begun uint64, _ time.Duration) bool { return begun < count }
	if count == 0 {
		more = func(_ uint64, now time.Duration) bool { return now < d }
	}
	switch {
	case l.post:
		return l.posts(ctx, more)
	case l.depth == 1:
		return l.calls(ctx, more)
	}
	return l.window(ctx, more)
}

// now returns the time since the run began. It reads one clock; time.Now reads two.
func (l *load) now() time.Duration { return time.Since(l.start) }

// numbered stamps the request with the number of the next message.
func (l *load) numbered() (req []byte, stamp uint64) {
	stamp = content.Stamp(l.seed, l.next)
	l.next++
	l.stamp(l.request, stamp)
	return l.request, stamp
}

// calls makes one call after the other.
func (l *load) calls(ctx context.Context, more func(uint64, time.Duration) bool) error {
	var answer []byte
	if !l.inPlace() {
		answer = make([]byte, 0, l.answerSize)
	}
	end := l.now()
	for begun := uint64(0); more(begun, end); begun++ {
		req, stamp := l.numbered()
		begin := l.now()
		var a []byte
		var lent client.Answer
		var err error
		if l.inPlace() {
			lent, err = l.method.CallInPlace(ctx, req)
			a = lent.Bytes()
		} else {
			a, err = l.method.CallInto(ctx, req, answer)
		}
		if err != nil {
			return err
		}
		end = l.now()
		l.finish(a, stamp, end-begin)
		lent.Release()
		l.settle()
	}
	return nil
}

// outstanding is a request whose answer has not been seen.
type outstanding struct {
	future  *client.Future
	pending client.Pending // instead, if the answer is read in place
	stamp   uint64
	begin   time.Duration
	answer  []byte // room for it, if it is not
}

// send sends the request.
func (o *outstanding) send(ctx context.Context, l *load, req []byte) (err error) {
	if l.inPlace() {
		o.pending, err = l.method.GoInPlace(ctx, req)
	} else {
		o.future, err = l.method.GoInto(ctx, req, o.answer)
	}
	return err
}

// wait waits for the answer, which is valid until lent is released. waited is false if it was known to be there.
func (o *outstanding) wait(ctx context.Context, l *load) (a []byte, lent client.Answer, waited bool, err error) {
	if l.inPlace() {
		waited = !o.pending.Ready()
		lent, err = o.pending.Wait(ctx)
		return lent.Bytes(), lent, waited, err
	}
	_, _, settled := o.future.Result()
	if a, err = o.future.Wait(ctx); err == nil {
		o.future.Release()
	}
	return a, lent, !settled, err
}

// drop gives the request up after an error: nobody waits for it.
func (o *outstanding) drop(l *load) {
	if !l.inPlace() {
		o.future.Cancel()
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if lent, err := o.pending.Wait(over); err == nil {
		lent.Release()
	}
}

// window keeps depth requests outstanding and waits for the oldest. A request's
// latency ends when its turn to be waited for has come and its answer is there.
func (l *load) window(ctx context.Context, more func(uint64, time.Duration) bool) error {
	queue := make([]outstanding, l.depth)
	if !l.inPlace() {
		for i := range queue {
			queue[i].answer = make([]byte, 0, l.answerSize)
		}
	}
	var begun, ended int // requests; first and last are their places in queue
	first, last := 0, 0
	bulky := l.bulky()
	defer func() {
		// After an error: nobody else waits for these.
		for ; ended < begun; ended++ {
			queue[last].drop(l)
			last = (last + 1) % l.depth
		}
	}()
	for now := l.now(); ; {
		for begun-ended < l.depth && more(uint64(begun), now) {
			req, stamp := l.numbered()
			if bulky {
				now = l.now() // to check the last answer has taken a while that is no part of this call
			}
			o := &queue[first]
			o.stamp, o.begin = stamp, now
			if err := o.send(ctx, l, req); err != nil {
				return err
			}
			begun++
			if first++; first == l.depth {
				first = 0
			}
			if !bulky && begun-ended < l.depth {
				now = l.now() // a window that fills up; else the time of the last answer
			}
		}
		if ended == begun {
			return nil
		}
		o := &queue[last]
		a, lent, waited, err := o.wait(ctx, l)
		if err != nil {
			return err
		}
		// An answer that was there already came in with the last one that was
		// waited for. The clock costs a good part of a call, so it is read
		// only now and then for those.
		if waited || bulky || ended%latency.ClockEvery == 0 {
			now = l.now()
			l.settle()
		}
		l.finish(a, o.stamp, now-o.begin)
		lent.Release()
		ended++
		if last++; last == l.depth {
			last = 0
		}
	}
}

// bulky reports whether every request and every answer needs a look at the clock of its own.
func (l *load) bulky() bool { return max(len(l.request), l.answerSize) > latency.Bulk }

// inPlace reports whether answers are read where they arrive, because copying them would take longer than that.
func (l *load) inPlace() bool { return l.answerSize > latency.Bulk }

// posts sends messages one way.
func (l *load) posts(ctx context.Context, more func(uint64, time.Duration) bool) error {
	now := l.now()
	for begun := uint64(0); more(begun, now); begun++ {
		req, _ := l.numbered()
		if err := l.method.Post(ctx, req); err != nil {
			return err
		}
		l.finished++
		// The clock costs as much as a good part of a post.
		if begun%16 == 0 {
			now = l.now()
			l.settle()
		}
	}
	return nil
}

func (l *load) finish(answer []byte, stamp uint64, took time.Duration) {
	if !l.check(answer, stamp) {
		l.mismatches++
	}
	l.latency.Add(took)
	l.finished++
}

// settle brings what others may look at up to date.
func (l *load) settle() { l.done.Store(l.finished) }
