package counters

// Merge adds what was counted in another row.
func (l *Lane) Merge(o *Lane) {
	l.LaneCounts.merge(&o.LaneCounts)
	l.Outcomes.Merge(&o.Outcomes)
	l.GroupSizes.Merge(&o.GroupSizes)
	l.Latency.Merge(&o.Latency)
	l.Queue.Merge(&o.Queue)
}

func (c *LaneCounts) merge(o *LaneCounts) {
	c.Requests += o.Requests
	c.Groups += o.Groups
	c.Bytes += o.Bytes
	c.AnswerGroups += o.AnswerGroups
	c.Answers += o.Answers
	c.Failures += o.Failures
	c.Backpressure += o.Backpressure
	c.Busy += o.Busy
	c.BusySlots += o.BusySlots
}

// Merge adds what was counted in another row.
func (s *Service) Merge(o *Service) {
	s.Requests += o.Requests
	s.Outcomes.Merge(&o.Outcomes)
	s.Latency.Merge(&o.Latency)
	s.Wait.Merge(&o.Wait)
}

// Merge adds what another has counted.
func (o *Outcomes) Merge(other *Outcomes) {
	for i, n := range other {
		o[i] += n
	}
}

// Merge adds what another has counted.
func (h *Sizes) Merge(o *Sizes) {
	h.Sum += o.Sum
	h.Max = max(h.Max, o.Max)
	for b, n := range &o.Buckets {
		h.Buckets[b] += n
	}
}
