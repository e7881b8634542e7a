package agent

import "github.com/rdmad/rdmad/slots"

// CallerSet is a set of attach ids.
type CallerSet [slots.MaxOwner/64 + 1]uint64

func (s *CallerSet) add(id uint16)  { s[id/64%uint16(len(s))] |= 1 << (id % 64) }
func (s *CallerSet) drop(id uint16) { s[id/64%uint16(len(s))] &^= 1 << (id % 64) }

// Has reports whether a caller is in the set.
func (s *CallerSet) Has(id uint16) bool { return s[id/64%uint16(len(s))]&(1<<(id%64)) != 0 }

// all returns those in the set.
func (s *CallerSet) all() (ids []uint16) {
	for id := range uint16(slots.MaxOwner) + 1 {
		if s.Has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
