package report

import (
	"fmt"
	"strings"
	"time"
)

// Thresholds are what a run must reach. 0 is none.
type Thresholds struct {
	// MinBandwidth is in MB/s, MinMsgRate in millions of messages per second: what every size
	// must have on average.
	MinBandwidth, MinMsgRate float64
	// MaxP99 is what the 99th percentile of latency may be at most, for every size.
	MaxP99 time.Duration
}

// MissedError says which thresholds a run has missed.
type MissedError struct{ Missed []string }

// Error lists them.
func (e *MissedError) Error() string { return "threshold missed: " + strings.Join(e.Missed, "; ") }

// Judge returns a *MissedError if a row misses a threshold.
func (r *Report) Judge(t Thresholds) error {
	var missed []string
	miss := func(format string, args ...any) { missed = append(missed, fmt.Sprintf(format, args...)) }
	for _, row := range r.Results {
		if b := row.Bandwidth; b != nil {
			if t.MinBandwidth > 0 && b.Average < t.MinBandwidth {
				miss("--min-bw %g: %.2f MB/s with %d bytes", t.MinBandwidth, b.Average, row.Size)
			}
			if t.MinMsgRate > 0 && b.MsgRate < t.MinMsgRate {
				miss("--min-msgrate %g: %.6f million messages per second with %d bytes", t.MinMsgRate, b.MsgRate, row.Size)
			}
		}
		if l := row.Latency; l != nil && t.MaxP99 > 0 && l.P99*1e3 > float64(t.MaxP99) {
			miss("--max-p99 %v: %.2f us with %d bytes", t.MaxP99, l.P99, row.Size)
		}
	}
	if missed == nil {
		return nil
	}
	return &MissedError{Missed: missed}
}
