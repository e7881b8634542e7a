// Package latency is how the loops of benchmarks read the clock and keep latencies, the same in all,
// so that their figures can be compared and all pay the same for being measured.
package latency

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// ClockEvery is how many answers that came in together share a look at the clock, which costs a good
	// part of the cheapest calls.
	ClockEvery = 8
	// Bulk is the size beyond which a message takes a while to copy or to check: each request and each
	// answer has a look at the clock of its own.
	Bulk = 1024
)

// Bounds of the latencies that are told apart, in ns.
const (
	least  = 1
	most   = int64(100 * time.Second)
	digits = 3
)

// New returns an empty histogram of latencies in ns.
func New() *hdrhistogram.Histogram { return hdrhistogram.New(least, most, digits) }

// Encode returns a histogram in HdrHistogram's V2 compressed form.
func Encode(h *hdrhistogram.Histogram) ([]byte, error) {
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode the latencies: %w", err)
	}
	return b, nil
}

// Merge adds the latencies that Encode has encoded to those of a histogram.
func Merge(to *hdrhistogram.Histogram, encoded []byte) error {
	h, err := hdrhistogram.Decode(encoded)
	if err != nil {
		return fmt.Errorf("decode latencies: %w", err)
	}
	to.Merge(h)
	return nil
}

// Recorder collects latencies, for one goroutine at a time.
type Recorder struct {
	all *hdrhistogram.Histogram
	// sames latencies of the value same are not in all yet.
	same  time.Duration
	sames int64
}

// NewRecorder returns one without latencies.
func NewRecorder() *Recorder { return &Recorder{all: New()} }

// Add adds a latency. Requests that were made together and whose answers came together mostly have the
// same one, and to add it once for all of them saves a good part of the bookkeeping.
func (r *Recorder) Add(d time.Duration) {
	if d != r.same {
		r.turn(d)
	}
	r.sames++
}

// turn begins another value. It is a call of its own so that Add is none.
//
//go:noinline
func (r *Recorder) turn(d time.Duration) {
	r.settle()
	r.same = d
}

func (r *Recorder) settle() {
	if r.sames > 0 {
		// Out of range only beyond 100 s, which no run waits for.
		_ = r.all.RecordValues(int64(r.same), r.sames)
		r.sames = 0
	}
}

// Reset forgets all.
func (r *Recorder) Reset() {
	r.sames = 0
	r.all.Reset()
}

// Histogram returns all latencies, in a histogram that belongs to the Recorder.
func (r *Recorder) Histogram() *hdrhistogram.Histogram {
	r.settle()
	return r.all
}
