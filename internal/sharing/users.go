package sharing

// Join notes that one client more has the lane.
func (s *Ring) Join() { s.users++ }

// Leave notes that one client less has the lane. It reports what Publish does: who is alone needs no share.
func (s *Ring) Leave() (grown bool) {
	s.users--
	return s.users < 2 && s.Publish(0)
}

// Users is how many clients have the lane.
func (s *Ring) Users() int { return s.users }

// Share is the share that is published; 0 for none.
func (s *Ring) Share() int { return s.word.Slots() }

// Taken is how many slots of a worker are in the journal.
func (s *Ring) Taken(owner int) int { return int(s.taken[owner]) }

// Sum is how many slots of all workers are in the journal.
func (s *Ring) Sum() int { return s.sum }

// High reports whether a worker has had so much that it perhaps waits until it has less.
func (s *Ring) High(owner int) bool { return s.high[owner] }

// MayWait reports whether a worker with one-way messages under way perhaps waits until it has less.
func (s *Ring) MayWait(owner int) bool {
	return s.posts[owner] > 0 && (s.high[owner] || s.grown[owner])
}

// Freed notes that one-way messages of a worker were done, which have no answers that would wake it, and reports
// whether it should be woken: when the freed slots, all since it was woken, are half of what it may hold, and when
// it has had more or may hold more, and none of them is left.
func (s *Ring) Freed(owner, freed int) (room bool) {
	last := s.posts[owner] == 0
	room = freed >= s.half() && int(s.taken[owner]) <= s.limit()-s.half() || last && (s.high[owner] || s.grown[owner])
	if last {
		s.high[owner], s.grown[owner] = false, false
	}
	return room
}
