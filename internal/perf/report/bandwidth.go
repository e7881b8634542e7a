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
	b := &Bandwidth{Average: rate * float64(size) / mib, MsgRate: rate / 1e6}
	if peak > 0 {
		b.Peak = max(b.Average, peak*1e9*float64(size)/mib)
	}
	return b
}
