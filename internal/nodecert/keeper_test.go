package nodecert

import (
	"testing"
	"time"
)

// Where the files cannot be read in time, what they held before does, for everybody and not only for who reads them: nobody waits
// for a file system that stalls once that is known.
func TestKeeperOfStalledFiles(t *testing.T) {
	dir, m := made(t, "a")
	read, stall := make(chan struct{}), make(chan struct{})
	k, err := NewKeeper(m.Nodes[0].Files, "a", func(*Material, error) {
		close(read)
		<-stall // as a read may
	})
	if err != nil {
		t.Fatal(err)
	}
	first := k.Material()
	if _, err := Make(Plan{Dir: dir, Nodes: []string{"a"}, NodeValid: time.Hour, Force: true}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := k.Material(); !got.Leaf.Equal(first.Leaf) {
			t.Error("there is other material although the files were not read")
		}
	}
	<-read
	k.mu.Lock()
	looking := k.looking
	k.mu.Unlock()
	close(stall)
	<-looking
	if k.Material().Leaf.Equal(first.Leaf) {
		t.Error("the new files are not read when they can be")
	}
}
