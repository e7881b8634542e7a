package groupsend_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/slots"
)

// poster collects groups.
type poster []groupsend.Group

func (p *poster) Post(g groupsend.Group) { *p = append(*p, g) }

func TestAnswersMatchTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := slots.Geometry{SlotSize: rapid.SampledFrom([]int{128, 65536}).Draw(t, "slot size"), Slots: rapid.SampledFrom([]int{16, 67, 200}).Draw(t, "slots"), MaxRun: 4}
		most := rapid.SampledFrom([]int{-1, 0, 1, 2, 5, 255, 1000}).Draw(t, "max")
		p := groupsend.NewAnswers(g, most)
		most = min(max(most, 1), 255)
		type item struct{ run, length int }
		ready := map[int]item{}
		used := make([]bool, g.Slots)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := rapid.IntRange(1, g.MaxRun).Draw(t, "run")
				i := rapid.IntRange(0, g.Slots-k).Draw(t, "index")
				for j := range k {
					if used[i+j] {
						return
					}
				}
				for j := range k {
					used[i+j] = true
				}
				ready[i] = item{k, rapid.IntRange(0, g.Capacity(k)).Draw(t, "length")}
				p.Add(i, k, uint32(ready[i].length))
			},
			"plan": func(t *rapid.T) {
				limit := rapid.SampledFrom([]int{-1, 0, 1, 2, 100}).Draw(t, "limit")
				var out poster
				n, more := p.Plan(&out, limit)
				if len(out) > max(limit, 0) || more != (len(ready)-n > 0) {
					t.Fatalf("%d groups, limit %d, more %v", len(out), limit, more)
				}
				last, sum := -1, 0
				for _, grp := range out {
					if grp.Index <= last || grp.Count < 1 || grp.Count > most {
						t.Fatalf("group %+v behind slot %d", grp, last)
					}
					next, end := grp.Index, 0
					for range grp.Count {
						it, ok := ready[next]
						if !ok || end >= groupsend.MaxGroupBytes {
							t.Fatalf("group %+v: slot %d", grp, next)
						}
						delete(ready, next)
						for j := range it.run {
							used[next+j] = false
						}
						last = next
						end = (next-grp.Index)*g.SlotSize + 64 + it.length
						next += it.run
					}
					if _, ok := ready[next]; end != grp.Bytes || ok && grp.Count < most && end < groupsend.MaxGroupBytes {
						t.Fatalf("group %+v: %d bytes, next is ready: %v", grp, end, ok)
					}
					sum += grp.Count
				}
				if sum != n {
					t.Fatalf("%d messages in groups, Plan says %d", sum, n)
				}
			},
			"": func(t *rapid.T) {
				if p.Pending() != len(ready) {
					t.Fatalf("pending %d, want %d", p.Pending(), len(ready))
				}
			},
		})
	})
}

func ExampleAnswers() {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4}
	p := groupsend.NewAnswers(g, groupsend.MaxCount)
	p.Add(7, 1, 10) // finished out of order
	p.Add(4, 2, 100)
	p.Add(6, 1, 0)
	p.Add(12, 1, 64)
	var out poster
	fmt.Println(p.Plan(&out, 10))
	for _, grp := range out {
		fmt.Printf("%+v %#x\n", grp, uint32(grp.Imm()))
	}
	// Output:
	// 4 false
	// {Index:4 Count:3 Bytes:458} 0x403
	// {Index:12 Count:1 Bytes:128} 0xc01
}
