package daemon

import "testing"

// A region that is being released, or was freed, is not waited for.
func TestHoldOfRegion(t *testing.T) {
	r := &region{domain: &domain{conductor: new(conductor)}}
	if !r.hold() {
		t.Fatal("a region that nobody has freed")
	}
	r.mu.RUnlock()
	r.mu.Lock() // as release, until every peer has given it back
	if r.hold() {
		t.Error("a region that is being released")
	}
	r.mu.Unlock()
	if r.freeing = true; r.hold() {
		t.Error("a region that is free")
	}
	if !r.mu.TryLock() {
		t.Error("its lock is held although it was refused")
	}
}
