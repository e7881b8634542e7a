package perf

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// CPU is the processor time of a whole process during a measurement.
type CPU struct {
	// User and System are in seconds, Percent is both in relation to the time that has
	// passed: 100 is one processor.
	User    float64 `json:"user_s"`
	System  float64 `json:"system_s"`
	Percent float64 `json:"percent"`
}

// Meter measures a CPU from its start on.
type Meter struct {
	at           int64
	user, system time.Duration
}

// StartMeter starts one.
func StartMeter() Meter {
	user, system := processTimes()
	return Meter{at: shm.Nanotime(), user: user, system: system}
}

// Read returns what was used since the start.
func (m Meter) Read() CPU {
	user, system := processTimes()
	c := CPU{User: (user - m.user).Seconds(), System: (system - m.system).Seconds()}
	if passed := float64(shm.Nanotime()-m.at) / 1e9; passed > 0 {
		c.Percent = 100 * (c.User + c.System) / passed
	}
	return c
}

func processTimes() (user, system time.Duration) {
	var r unix.Rusage
	// It cannot fail for the own process.
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}
