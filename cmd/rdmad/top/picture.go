// Package top is "rdmad top": what a node does right now, again and again, on a terminal
// or as plain tables.
package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/status"
)

// Picture is what is known of a node: its last state, and the one before for rates.
type Picture struct {
	// Now is the last state that the daemon has told, at At; nil before the first.
	Now *status.Node
	At  time.Time
	// before is the state before that of the same core and from the same place, and gap the time between them.
	before *status.Node
	gap    time.Duration
	// counted: Now is from the file of counters, which has no peers, no workers, no processes
	// of services and no states of lanes. Their numbers are not 0 but unknown.
	counted bool
	// Err is why there is no newer state: what is shown is old. Nil while there is.
	Err error
	// Looked is when the daemon was asked last.
	Looked time.Time
}

// fresh reports that what is shown is of the last look, and not older.
func (p *Picture) fresh() bool { return p.Err == nil || errors.Is(p.Err, ErrCountersOnly) }

// take adds what a look has found: a state, an error or both.
func (p *Picture) take(s *status.Node, err error, at time.Time) {
	p.Err, p.Looked = err, at
	if s == nil {
		return
	}
	counted := errors.Is(err, ErrCountersOnly)
	p.before, p.gap = nil, 0
	// The file of counters has other numbers for lanes than the daemon.
	if p.Now != nil && p.Now.Incarnation == s.Incarnation && p.Now.PIDs == s.PIDs && p.counted == counted {
		p.before, p.gap = p.Now, at.Sub(p.At)
	}
	p.Now, p.At, p.counted = s, at, counted
}

// rate returns how much a number that only grows has grown per second, and whether that
// is known.
func (p *Picture) rate(now, before uint64) (float64, bool) {
	if p.before == nil || p.gap <= 0 || now < before {
		return 0, false
	}
	return float64(now-before) / p.gap.Seconds(), true
}

// counter returns the rate of a counter.
func (p *Picture) counter(name string) (float64, bool) {
	if p.before == nil {
		return 0, false
	}
	return p.rate(p.Now.Counters[name], p.before.Counters[name])
}

// Source asks a daemon for its state. It keeps the attachment, and makes another when that
// has ended. It belongs to one goroutine at a time.
type Source struct {
	// Socket is the daemon's, as for look.Attach.
	Socket string
	// File is that of its counters; empty: where the daemon has said, or next to its socket.
	File   string
	daemon *look.Daemon
	// said is where the daemon has its file of counters by the configuration with this digest; empty: nowhere.
	said, digest string
}

// lookLimit is how long a daemon may take to answer before it counts as one that hangs.
const lookLimit = 2 * time.Second

// ErrCountersOnly is wrapped by the error that comes with a state when the daemon does not
// answer, and what is known of it is from the file of its counters.
var ErrCountersOnly = errors.New("COUNTERS ONLY")

// Look returns the daemon's state. Of a daemon that is there and does not answer it is
// what its file of counters says, with an error that says so.
func (s *Source) Look(ctx context.Context) (*status.Node, error) {
	status, err := s.ask(ctx)
	if !errors.Is(err, look.ErrNoAnswer) {
		return status, err
	}
	counted, cerr := look.Counted(s.file())
	if cerr != nil {
		return nil, fmt.Errorf("%w; nor are its counters to be had (see: --file): %v", err, cerr) // which is not what went wrong
	}
	return counted, fmt.Errorf("%w: %w", ErrCountersOnly, err)
}

// ask asks the daemon.
func (s *Source) ask(ctx context.Context) (*status.Node, error) {
	if s.daemon == nil {
		d, err := look.Attach(ctx, s.Socket, "rdmad-top", lookLimit)
		if err != nil {
			return nil, err
		}
		s.daemon = d
	}
	raw, err := s.daemon.Raw(ctx)
	if err != nil {
		s.Close()
		return nil, err
	}
	status, err := look.Parse(raw)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.hear(status, raw)
	return status, nil
}

// hear remembers where a daemon says that its file of counters is: it cannot be asked when that is needed.
func (s *Source) hear(n *status.Node, raw json.RawMessage) {
	if n.Config == nil || n.Config.Digest == s.digest {
		return
	}
	if started, err := look.StartedOf(raw); err == nil {
		s.said, s.digest = started.InForce.CountersPath(), n.Config.Digest
	}
}

// file returns where the file of counters should be.
func (s *Source) file() string {
	switch {
	case s.File != "":
		return s.File
	case s.digest != "":
		return s.said
	}
	return look.CountersPath(s.Socket)
}

// Close ends the attachment, if there is one.
func (s *Source) Close() {
	if s.daemon != nil {
		_ = s.daemon.Close() // it may have ended before
		s.daemon = nil
	}
}

// perSecond formats a rate.
func perSecond(r float64, known bool) string {
	switch {
	case !known:
		return ""
	case r >= 1e7:
		return fmt.Sprintf("%.1fM", r/1e6)
	case r >= 1e5:
		return fmt.Sprintf("%.0fk", r/1e3)
	case r >= 100 || r == 0:
		return fmt.Sprintf("%.0f", r)
	}
	return fmt.Sprintf("%.1f", r)
}

// bytesPerSecond formats a rate of bytes.
func bytesPerSecond(r float64, known bool) string {
	if !known {
		return "-"
	}
	unit := 0
	units := [...]string{"B/s", "KiB/s", "MiB/s", "GiB/s"}
	for ; r >= 1024 && unit < len(units)-1; unit++ {
		r /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%.0f %s", r, units[unit])
	}
	return fmt.Sprintf("%.1f %s", r, units[unit])
}
