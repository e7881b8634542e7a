package daemon

import (
	"testing"

	"github.com/rdmad/rdmad/internal/version"
)

// One process that does not know what may go with a request is enough.
func TestCarryIsNegotiated(t *testing.T) {
	m := &method{workers: map[*worker]bool{{abi: 4<<16 | 2}: true, {abi: 4<<16 | 3}: true}}
	if !m.carries() {
		t.Error("all know it")
	}
	m.workers[&worker{abi: 4<<16 | 1}] = true
	if m.carries() {
		t.Error("one does not know it")
	}
	same := version.Own()
	old := same
	old.ABI--
	if old.Adopts(same) == nil || same.Adopts(old) != nil || same.Adopts(same) != nil {
		t.Error("an older program goes on with what it may not know")
	}
}
