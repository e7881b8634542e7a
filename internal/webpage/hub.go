package webpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Errors of hub.join.
var (
	errClosed  = errors.New("the page is closed: the daemon stops")
	errCrowded = errors.New("too many viewers")
)

// sample is what the source said. It is shared by all viewers and never changes.
type sample struct {
	at time.Time
	// status is JSON in one line, unless there is an error.
	status []byte
	err    error
}

// viewer is a connection that gets samples.
type viewer struct {
	// news has the latest sample if the viewer has not taken it: later ones replace it.
	news chan *sample
	// gone is closed when the hub is.
	gone <-chan struct{}
	// network is the kind of network by which the viewer came.
	network string
}

// hub asks the source on behalf of all viewers.
type hub struct {
	source   Source
	interval time.Duration
	patience time.Duration
	most     int
	// ctx ends, by stop, with the hub.
	ctx  context.Context
	stop context.CancelFunc
	// empty wakes the sampler when the last viewer has gone.
	empty chan struct{}

	mu      sync.Mutex
	viewers map[*viewer]struct{}
	closed  bool
	// running says that there is a sampler, ended is closed when it has ended.
	running bool
	ended   chan struct{}
	// last is the latest sample, and next the time before which there is no other: they
	// outlive samplers, so that viewers who come and go do not hurry the source.
	last *sample
	next time.Time
}

func newHub(source Source, o Options) *hub {
	h := &hub{source: source, interval: o.Interval, patience: o.Patience, most: o.Viewers, viewers: map[*viewer]struct{}{}, empty: make(chan struct{}, 1)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// join adds a viewer, who must leave. A sample that is not old is there at once.
func (h *hub) join(network string) (*viewer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for v := range h.viewers {
		if v.network == network {
			n++
		}
	}
	switch {
	case h.closed:
		return nil, errClosed
	case n >= h.most:
		return nil, fmt.Errorf("%w: %d look already", errCrowded, n)
	}
	v := &viewer{news: make(chan *sample, 1), gone: h.ctx.Done(), network: network}
	h.viewers[v] = struct{}{}
	if h.last != nil && time.Since(h.last.at) < h.interval {
		v.news <- h.last
	}
	if !h.running {
		h.running, h.ended = true, make(chan struct{})
		go h.run(h.ended)
	}
	return v, nil
}

func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.viewers, v)
	if len(h.viewers) == 0 {
		h.last = nil // nobody is to hold it
		select {
		case h.empty <- struct{}{}:
		default:
		}
	}
}

// run is the sampler. It ends when there are no viewers; one who comes before it has
// noticed keeps it.
func (h *hub) run(ended chan struct{}) {
	defer close(ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, wanted := h.until()
		if !wanted {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
			h.publish(h.take())
		case <-h.empty:
		case <-h.ctx.Done():
		}
	}
}

// until returns how long to wait for the next sample, and whether anybody wants it: if
// not, the sampler has ended.
func (h *hub) until() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) == 0 || h.closed {
		h.running = false
		return 0, false
	}
	return time.Until(h.next), true
}

// take asks the source.
func (h *hub) take() *sample {
	ctx, cancel := context.WithTimeout(h.ctx, h.patience)
	defer cancel()
	raw, err := h.source.Status(ctx)
	s := &sample{at: time.Now(), err: err}
	if err == nil {
		// One line, whatever the source has made of it: a line is what an event has.
		if s.status, s.err = json.Marshal(raw); s.err != nil {
			s.err = fmt.Errorf("the status is no JSON: %w", s.err)
		}
	}
	// From the answer on: a source may give the same one again within the interval.
	h.mu.Lock()
	h.next = time.Now().Add(h.interval)
	h.mu.Unlock()
	return s
}

// publish gives a sample to all viewers.
func (h *hub) publish(s *sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.viewers) > 0 {
		h.last = s
	}
	for v := range h.viewers {
		select {
		case <-v.news:
		default:
		}
		v.news <- s // there is room: only publish and join send, with mu held
	}
}

// close ends all viewers and returns when the sampler has ended.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	running, ended := h.running, h.ended
	h.mu.Unlock()
	h.stop()
	if running {
		<-ended
	}
}
