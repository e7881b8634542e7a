package daemon

import "github.com/rdmad/rdmad/slots"

// callerSet is a set of attach ids.
type callerSet [slots.MaxOwner/64 + 1]uint64

func (s *callerSet) add(id uint16)      { s[id/64%uint16(len(s))] |= 1 << (id % 64) }
func (s *callerSet) drop(id uint16)     { s[id/64%uint16(len(s))] &^= 1 << (id % 64) }
func (s *callerSet) has(id uint16) bool { return s[id/64%uint16(len(s))]&(1<<(id%64)) != 0 }

// all returns those in the set.
func (s *callerSet) all() (ids []uint16) {
	for id := range uint16(slots.MaxOwner) + 1 {
		if s.has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
