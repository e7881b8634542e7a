package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/system"
	"github.com/rdmad/rdmad/internal/bench/cputime"
	"github.com/rdmad/rdmad/internal/bench/latency"
	"github.com/rdmad/rdmad/shm"
)

// stallLimit is far beyond every delay of a system that works.
const stallLimit = 45 * time.Second

// errStalled ends a process that makes no progress.
var errStalled = fmt.Errorf("no progress for %v", stallLimit)

// Client is the body of a client process: it does jobs until its input ends. A job that fails
// ends it, after a report.
func Client(ctx context.Context, in io.Reader, out io.Writer) error {
	c := &clientProcess{in: bufio.NewReader(in), out: json.NewEncoder(out)}
	for {
		line, err := c.in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a job: %w", err)
		}
		var j Job
		if err := json.Unmarshal(line, &j); err != nil {
			return fmt.Errorf("read a job: %w", err)
		}
		if err := c.do(ctx, &j); err != nil {
			return errors.Join(err, c.out.Encode(Report{Error: err.Error()}))
		}
	}
}

type clientProcess struct {
	in  *bufio.Reader
	out *json.Encoder
}

func (c *clientProcess) do(ctx context.Context, j *Job) (err error) {
	s, err := system.Find(j.System)
	if err != nil {
		return err
	}
	l := newLoad(j)
	if j.Kind == Arrive {
		l.need = system.Need{Op: system.Count, Depth: 1, Request: countRequest, Answer: countSize}
	}
	dialed, cancel := context.WithTimeoutCause(ctx, stallLimit, errStalled)
	defer cancel()
	session, err := s.Dial(dialed, j.Address, l.need)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	switch j.Kind {
	case Load:
		return c.load(ctx, l, session)
	case Idle:
		return c.idle(l, session)
	case Arrive:
		return c.arrive(ctx, j, session)
	}
	return fmt.Errorf("an unknown kind of job: %q", j.Kind)
}

// turn reports how far the process is and waits for the line that lets it go on.
func (c *clientProcess) turn(r Report) error {
	if err := c.out.Encode(r); err != nil {
		return err
	}
	if _, err := c.in.ReadBytes('\n'); err != nil {
		return fmt.Errorf("wait to go on: %w", err)
	}
	return nil
}

func (c *clientProcess) load(ctx context.Context, l *load, s system.Session) error {
	if err := watched(ctx, l, func() error { return l.run(s, l.job.Warmup) }); err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	if err := c.turn(Report{Ready: true, Warmed: l.finished}); err != nil {
		return err
	}
	before, err := cputime.Of(0)
	if err != nil {
		return err
	}
	begin := shm.Nanotime()
	if err := watched(ctx, l, func() error { return l.run(s, l.job.Duration) }); err != nil {
		return err
	}
	r := &Result{Messages: l.finished, Mismatches: l.mismatches, Begin: begin, End: shm.Nanotime()}
	after, err := cputime.Of(0)
	if err != nil {
		return err
	}
	r.CPU = after - before
	if err := c.turn(Report{Finished: true}); err != nil {
		return err
	}
	if l.job.Op != system.Post {
		if r.Histogram, err = latency.Encode(l.latency.Histogram()); err != nil {
			return err
		}
	}
	return c.out.Encode(Report{Result: r})
}

// idle makes one call, so that everything that is set up late is there.
func (c *clientProcess) idle(l *load, s system.Session) error {
	req := l.request()
	stamp := l.stamp(req)
	answer, err := system.Once(s, req)
	if err != nil {
		return err
	}
	l.check(answer, stamp)
	if err := c.turn(Report{Ready: true}); err != nil {
		return err
	}
	return c.out.Encode(Report{Result: &Result{Messages: l.finished, Mismatches: l.mismatches}})
}

const (
	// countRequest is the size of a request for a count, and countSize of the answer.
	countRequest, countSize = 0, 8
	// countPause lies between two of them.
	countPause = time.Millisecond
)

// arrive asks for the count until it is what is expected, and gives up when it has not grown for
// long. It takes no ready and no start: it begins at once.
func (c *clientProcess) arrive(ctx context.Context, j *Job, s system.Session) error {
	last, since := uint64(0), time.Now()
	for {
		answer, err := system.Once(s, nil)
		if err != nil {
			return err
		}
		if len(answer) != countSize {
			return fmt.Errorf("a count has %d bytes, want %d", len(answer), countSize)
		}
		n := binary.LittleEndian.Uint64(answer)
		switch {
		case n > j.Expect:
			return fmt.Errorf("%d messages have arrived, %d were sent", n, j.Expect)
		case n == j.Expect:
			return c.out.Encode(Report{Result: &Result{Messages: n}})
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > stallLimit:
			return fmt.Errorf("%d messages have not arrived: %w", j.Expect-n, errStalled)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(countPause):
		}
	}
}

// watched runs something that makes calls, and gives up waiting for it when there is no progress.
// What it waits for then is left to the end of the process.
func watched(ctx context.Context, l *load, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	tick := time.NewTicker(stallLimit / 4)
	defer tick.Stop()
	for last, since := l.done.Load(), time.Now(); ; {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if done := l.done.Load(); done != last {
			last, since = done, time.Now()
		} else if time.Since(since) > stallLimit {
			return errStalled
		}
	}
}
