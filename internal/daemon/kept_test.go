package daemon

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/depot"
)

// That the depot ends with the supervisor is no event of its own; that it ends without is.
func TestDepotEndsWithTheSupervisor(t *testing.T) {
	store := depot.NewStore(depot.Limits{Items: 10, FDs: 10}, func(err error) { t.Error(err) })
	defer store.Clear()
	link, theirs, err := store.Pair()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { link.Serve(); close(served) }()
	kept, _, err := depot.Open(theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	link.Abort()
	<-served
	var said strings.Builder
	orphaned := make(chan struct{})
	c := &conductor{depot: kept, orphaned: orphaned, log: zerolog.New(&said)}
	say := func() string {
		said.Reset()
		c.keep("key", nil)
		c.keepChange("key", nil)
		c.keepNoMore("key")
		return said.String()
	}
	if s := say(); strings.Count(s, "not-kept") != 2 || strings.Count(s, "not-dropped") != 1 {
		t.Errorf("while the supervisor lives: %s", s)
	}
	close(orphaned)
	if s := say(); s != "" {
		t.Errorf("when the supervisor is gone: %s", s)
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	if s := say(); s != "" {
		t.Errorf("when the core ends for that: %s", s)
	}
}
