package groupsend_test

import (
	"testing"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/slots"
)

// Where writes have no order, every group is one write, however far its messages lie apart.
func TestUnorderedAnswers(t *testing.T) {
	g := slots.Geometry{SlotSize: 4096, Slots: 64, MaxRun: 4}
	a := groupsend.NewAnswers(g, 255)
	a.SetUnordered(true)
	for i := range 10 {
		length := uint32(100) // far from the next one
		if i%3 == 0 {
			length = 4096 - slots.HeaderSize
		}
		a.Add(i, 1, length)
	}
	p := &poster{}
	if n, more := a.Plan(p, 100); n != 10 || more {
		t.Fatalf("%d answers, more: %v", n, more)
	}
	covered := 0
	for _, group := range p.groups {
		if len(group.writes) != 1 {
			t.Errorf("group at %d has %d writes", group.Index, len(group.writes))
		}
		covered += group.Count
	}
	if covered != 10 || len(p.groups) < 5 {
		t.Errorf("%d answers in %v", covered, p)
	}
	// With order they are one group again.
	a.SetUnordered(false)
	for i := range 10 {
		a.Add(i, 1, 100)
	}
	p = &poster{}
	if a.Plan(p, 100); len(p.groups) != 1 || len(p.groups[0].writes) != 10 {
		t.Errorf("with order: %v", p.groups)
	}
}

// An ordered request waits until the one that it comes after has landed, unless both go with
// the same write.
func TestUnorderedRequests(t *testing.T) {
	ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	clerk := &orderClerk{t: t, ring: ring, next: make([]uint64, 2)}
	plan := groupsend.NewRequests(ring, 1)
	landed := false
	plan.SetUnordered(func(int) bool { return landed })
	first := clerk.publish(1, 1, 1, 0, slots.Run{})
	clerk.publish(1, 1, 1, 1, first)
	if n, _ := plan.Plan(clerk, 10); n != 1 {
		t.Fatalf("%d were taken, want the first alone", n)
	}
	if n, _ := plan.Plan(clerk, 10); n != 0 {
		t.Fatalf("%d were taken before the first had landed", n)
	}
	landed = true
	if n, _ := plan.Plan(clerk, 10); n != 1 {
		t.Fatalf("%d were taken after the first had landed", n)
	}
}
