package shm

import (
	"fmt"
	"strings"
	"time"
)

// WaitMode says what a thread does that waits for another process: sleep at once,
// poll, or poll for a time and then sleep. The zero WaitMode is WaitEvent.
type WaitMode time.Duration

const (
	// WaitEvent sleeps at once, until it is woken.
	WaitEvent WaitMode = 0
	// WaitBusy polls and never sleeps.
	WaitBusy WaitMode = -1
	// MaxSpin is the longest time that WaitAdaptive polls at a time.
	MaxSpin = time.Millisecond
	// DefaultSpin is the time that "adaptive" alone means as a text. It is longer
	// than a round trip through processors that must be woken.
	DefaultSpin = 200 * time.Microsecond
)

// WaitAdaptive polls for d, 0 to MaxSpin, and then sleeps. With 0 it is WaitEvent.
func WaitAdaptive(d time.Duration) WaitMode { return WaitMode(min(max(d, 0), MaxSpin)) }

// Bounded returns what a mode means that was made of any time: to poll for MaxSpin at most, or WaitBusy if it is
// less than 0. Poll takes no others.
func (m WaitMode) Bounded() WaitMode {
	if m < 0 {
		return WaitBusy
	}
	return min(m, WaitMode(MaxSpin))
}

// String returns the mode as UnmarshalText reads it.
func (m WaitMode) String() string {
	switch {
	case m < 0:
		return "busy"
	case m == 0:
		return "event"
	}
	return "adaptive:" + time.Duration(m).String()
}

// MarshalText implements encoding.TextMarshaler.
func (m WaitMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads "event", "busy", "adaptive", or "adaptive:" and the time to
// poll, such as "adaptive:20us".
func (m *WaitMode) UnmarshalText(text []byte) error {
	name, spin, timed := strings.Cut(string(text), ":")
	d, err := DefaultSpin, error(nil)
	if timed {
		d, err = time.ParseDuration(spin)
	}
	switch {
	case name == "event" && !timed:
		*m = WaitEvent
	case name == "busy" && !timed:
		*m = WaitBusy
	case name == "adaptive" && err == nil && d >= 0 && d <= MaxSpin:
		*m = WaitAdaptive(d)
	default:
		return fmt.Errorf("wait mode %q: want event, busy, adaptive, or adaptive: and 0s to %v", text, MaxSpin)
	}
	return nil
}
