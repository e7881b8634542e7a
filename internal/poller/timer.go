package poller

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Timer ends a Wait at a time that is set before, however often the Poller waits
// meanwhile. For sleeps that end early, again and again, it is cheaper than a timeout
// for each: setting the hardware's timer costs more than such a sleep. It is also more
// exact, as the kernel does not add a thread's timer slack. Not safe for concurrent use.
type Timer struct {
	poller *Poller
	fd     int
	spec   unix.ItimerSpec
}

// NewTimer makes a timer that is not set. The caller must Close it before the poller.
func (p *Poller) NewTimer() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("poller: timerfd_create: %w", err)
	}
	t := &Timer{poller: p, fd: fd}
	// Each expiry is a new event: the descriptor need not be read.
	if err := p.Add(fd, unix.EPOLLIN|unix.EPOLLET, t); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return t, nil
}

// Ready implements Handler: waking up was all.
func (t *Timer) Ready(int, uint32) {}

// Set makes a Wait end at the given time of CLOCK_MONOTONIC, in nanoseconds and more
// than 0, or at once if it has passed. It replaces what was set before.
func (t *Timer) Set(at int64) error {
	t.spec.Value = unix.NsecToTimespec(max(1, at))
	if err := unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &t.spec, nil); err != nil {
		return fmt.Errorf("poller: timerfd_settime: %w", err)
	}
	return nil
}

// Close ends the timer.
func (t *Timer) Close() error {
	if err := t.poller.Remove(t.fd); err != nil {
		return err
	}
	return unix.Close(t.fd)
}
