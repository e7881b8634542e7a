package blast

import "time"

const (
	// parts is into how many parts a run is divided, of which the best one is the peak.
	parts = 20
	// shortest is the least time of a part: what is shorter says more about when
	// completions were looked at than about bandwidth.
	shortest = int64(time.Millisecond)
)

// peak finds the best part of a run.
type peak struct {
	messages uint64 // of a part, at least
	ns       int64  // that a part takes at least
	from     uint64
	at       int64
	best     float64 // messages per nanosecond; 0: there was no part yet
}

func newPeak(count uint64, d time.Duration, from uint64, now int64) peak {
	return peak{messages: max(1, count/parts), ns: max(shortest, int64(d)/parts), from: from, at: now}
}

// see is told how many messages were through at a time. more: others may have been, too, which nobody has looked at yet. No part
// ends then, because these would be counted in the next one: what has come while a process was kept from looking is
// not what a link can do.
func (p *peak) see(through uint64, now int64, more bool) {
	if more || through < p.from+p.messages || now-p.at < p.ns {
		return
	}
	p.best = max(p.best, float64(through-p.from)/float64(now-p.at))
	p.from, p.at = through, now
}
