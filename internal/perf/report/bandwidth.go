package report

// mib is perftest's "MB".
const mib = 1 << 20

// Bandwidth is what perftest says of bandwidth, with its keys. A "MB" is 2^20 bytes, as
// perftest has it.
type Bandwidth struct {
	// Peak is the best of the parts of a run, in MB/s; 0 where there are no parts.
	Peak float64 `json:"BW_peak"`
	// Average is that of the whole run, in MB/s.
	Average float64 `json:"BW_average"`
	// MsgRate is in millions of messages per second.
	MsgRate float64 `json:"MsgRate"`
}

// NewBandwidth returns the figures of messages of a size that took ns nanoseconds. Peak is the
// most messages per nanosecond that were seen, 0 if that was not measured.
func NewBandwidth(size int, messages uint64, ns int64, peak float64) *Bandwidth {
	rate := float64(messages) / (float64(max(ns, 1)) / 1e9)
	return &Bandwidth{
		Peak:    peak * 1e9 * float64(size) / mib,
		Average: rate * float64(size) / mib,
		MsgRate: rate / 1e6,
	}
}

// Gbits returns a number of MB/s in gigabits (10^9 bits) per second.
func Gbits(mbs float64) float64 { return mbs * mib * 8 / 1e9 }
