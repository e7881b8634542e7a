package daemon

import "time"

// twiceEvery is how often it is said that two daemons have one name.
const twiceEvery = time.Minute

// nameBearers notices that two daemons have the name of one peer. Each start of a daemon is an incarnation of its own, so one that
// is there again after another one has lived all the time.
type nameBearers struct {
	// last is the present incarnation, and before the one that it took the place of, with where they connected from.
	last, before     string
	lastAt, beforeAt string
	said             time.Time
}

// bear notes that an incarnation has connected from an address. If another one lives besides it returns the address of that, unless
// that was said less than twiceEvery ago.
func (b *nameBearers) bear(incarnation, address string, now time.Time) (other string) {
	switch incarnation {
	case b.last:
	case b.before:
		b.before, b.last = b.last, b.before
		b.beforeAt = b.lastAt
		if now.Sub(b.said) >= twiceEvery {
			b.said, other = now, b.beforeAt
		}
	default:
		b.before, b.beforeAt, b.last = b.last, b.lastAt, incarnation
	}
	b.lastAt = address
	return other
}
