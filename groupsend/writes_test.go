package groupsend_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmad/rdmad/groupsend"
)

// span is a write: an offset into the slots and a size.
type span struct{ from, bytes int }

// posted is a group with its writes.
type posted struct {
	groupsend.Group
	writes []span
}

// poster collects groups.
type poster struct {
	groups []posted
	parts  []span // of the next group
	writes int    // of all groups
}

func (p *poster) Part(from, bytes int) {
	p.parts = append(p.parts, span{from, bytes})
	p.writes++
}

func (p *poster) Post(g groupsend.Group) {
	p.groups = append(p.groups, posted{g, append(p.parts, span{g.From, g.Bytes})})
	p.parts = nil
	p.writes++
}

// String shows first slot, number of messages and size of the last write of each
// group.
func (p *poster) String() string {
	groups := [][3]int{}
	for _, g := range p.groups {
		groups = append(groups, [3]int{g.Index, g.Count, g.Bytes})
	}
	return strings.NewReplacer("[[", "[{", "]]", "}]", "] [", "} {").Replace(fmt.Sprint(groups))
}

// plan is what the writes of a group must be.
type plan struct {
	writes []span
	sent   int // bytes of all but the last
}

// add adds a message's bytes.
func (p *plan) add(from, end int) {
	if n := len(p.writes); n > 0 {
		last := &p.writes[n-1]
		if from-(last.from+last.bytes) <= groupsend.MaxGap {
			last.bytes = end - last.from
			return
		}
		p.sent += last.bytes
	}
	p.writes = append(p.writes, span{from, end - from})
}

// full reports whether a group with these writes takes no further message.
func (p *plan) full() bool {
	n := len(p.writes)
	return n > 0 && p.sent+p.writes[n-1].bytes >= groupsend.MaxGroupBytes
}

// check compares with the writes of a group. A last one without bytes, for the
// immediate alone, is fine.
func (p *plan) check(g posted) error {
	got := g.writes
	if n := len(got); n > 1 && got[n-1].bytes == 0 {
		got = got[:n-1]
	}
	if !slices.Equal(got, p.writes) {
		return fmt.Errorf("group %+v: want writes %v", g, p.writes)
	}
	return nil
}
