package daemon

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/attach"
)

// Who asks for a region, and has seen no core die, is not looked for among the regions that there are, for which conductor.mu would be
// held as long as there are many.
func TestNewQuestionForARegion(t *testing.T) {
	c := &conductor{log: zerolog.Nop()}
	d := &domain{conductor: c}
	ask := &attach.Message{Type: attach.TypeAlloc, Seq: 7, Region: &attach.RegionInfo{Size: 10}}
	again := &worker{domain: d, adopted: true}
	r := &region{domain: d, owner: again, seq: 7, want: 10}
	d.regions.enter(r)
	d.regions.enter(&region{domain: d, owner: &worker{domain: d}, seq: 7, want: 10}) // another one's
	found := c.regionFor(again, ask)
	if found != r {
		t.Fatalf("asked again: %v", found)
	}
	found.mu.RUnlock()
	looked := make(chan *region, 2)
	c.mu.Lock()
	go func() {
		looked <- c.regionFor(&worker{domain: d}, ask)
		looked <- c.regionFor(again, &attach.Message{Type: attach.TypeAlloc, Region: ask.Region})
	}()
	for range 2 {
		select {
		case r := <-looked:
			if r != nil {
				t.Errorf("found %v", r)
			}
		case <-time.After(time.Minute):
			t.Error("it waits for conductor.mu")
		}
	}
	c.mu.Unlock()
}

// A worker's regions are known as such as long as they exist, and those of one that is gone are freed, and no others.
func TestRegionsOfAWorker(t *testing.T) {
	c, err := newConductor(parsed(t, "[observe]\ncounters = \"off\"\n"), 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	d := c.allDomains()[0]
	first, second := pose(t, c, d, 1), pose(t, c, d, 2)
	for range 3 {
		for _, p := range []*posed{first, second} {
			if _, err := p.alloc(); err != nil {
				t.Fatal(err)
			}
		}
	}
	owned := func(p *posed) []*region {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Collect(maps.Keys(p.w.regions.own))
	}
	for _, p := range []*posed{first, second} {
		own := owned(p)
		if len(own) != 3 || slices.ContainsFunc(own, func(r *region) bool { return r.owner != p.w }) {
			t.Errorf("worker %d has %d regions", p.w.id, len(own))
		}
	}
	one := owned(first)[0]
	one.free()
	c.freeRegions(second.w)
	eventually(t, "what is freed is gone", func() error {
		if len(owned(first)) != 2 || len(owned(second)) != 0 {
			return errors.New("it is not")
		}
		return nil
	})
	if slices.Contains(owned(first), one) {
		t.Error("another one was freed")
	}
}
