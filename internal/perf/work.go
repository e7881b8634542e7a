package perf

import (
	"errors"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	// LargestSize is that of perftest's messages, and the end of a sweep.
	LargestSize = 8 << 20
	// MaxCount bounds the messages of one size, MaxDuration the time for one size.
	MaxCount    = 100_000_000
	MaxDuration = time.Hour
	// usualInline is perftest's, for writes.
	usualInline = 220
)

// Work is what those tools are asked for that measure messages of one size or of several.
type Work struct {
	// Sizes are those of the messages, measured one after the other.
	Sizes []int `json:"sizes"`
	// Count is the number of messages of each size; 0: as many as go into Duration.
	Count    uint64        `json:"count"`
	Duration time.Duration `json:"duration"`
	// Event: wait for completions by sleeping in the kernel instead of polling.
	Event bool `json:"event"`
	// Verify compares every byte with what Seed makes of it.
	Verify bool   `json:"verify"`
	Seed   uint64 `json:"seed"`
	// Inline is up to how many bytes a message travels in its work request; -1: usualInline,
	// or what the device takes.
	Inline int `json:"inline"`
}

// Sweep returns the sizes of perftest's -a: 2, 4, 8 and so on up to LargestSize.
func Sweep() []int {
	var sizes []int
	for n := 2; n <= LargestSize; n *= 2 {
		sizes = append(sizes, n)
	}
	return sizes
}

// Largest returns the largest of the sizes.
func (w *Work) Largest() int {
	largest := 0
	for _, n := range w.Sizes {
		largest = max(largest, n)
	}
	return largest
}

// Check returns an *InputError for what no tool could do.
func (w *Work) Check(caps fabric.Caps) error {
	if len(w.Sizes) == 0 || len(w.Sizes) > len(Sweep()) {
		return Inputf("%d sizes of messages: want 1 to %d", len(w.Sizes), len(Sweep()))
	}
	for _, n := range w.Sizes {
		if n < 1 || n > LargestSize {
			return Inputf("messages of %d bytes: want 1 to %d (--size)", n, LargestSize)
		}
	}
	switch {
	case w.Count == 0 && w.Duration <= 0:
		return Inputf("no messages: want --iters of 1 to %d, or a --duration", MaxCount)
	case w.Count > 0 && w.Duration != 0:
		return Inputf("--iters and --duration: only one can end the run")
	case w.Count > MaxCount:
		return Inputf("%d messages: want at most %d (--iters)", w.Count, MaxCount)
	case w.Duration > MaxDuration:
		return Inputf("%v: want at most %v (--duration)", w.Duration, MaxDuration)
	case w.Inline < -1 || w.Inline > caps.MaxInline:
		return Inputf("%d bytes inline: this device takes 0 to %d (--inline-size)", w.Inline, caps.MaxInline)
	}
	return nil
}

// InlineLimit returns up to how many bytes a message travels in its work request.
func (w *Work) InlineLimit(caps fabric.Caps) int {
	if w.Inline < 0 {
		return min(usualInline, caps.MaxInline)
	}
	return w.Inline
}

// Over reports that the messages of a size, which took ns nanoseconds, were enough.
func (w *Work) Over(messages uint64, ns int64) bool {
	if w.Count > 0 {
		return messages >= w.Count
	}
	return ns >= int64(w.Duration)
}

// Full reports that PostSend or PostRecv only had no room.
func Full(err error) bool { return errors.Is(err, fabric.ErrQueueFull) }
