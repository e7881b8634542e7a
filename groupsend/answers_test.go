package groupsend_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/slots"
)

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
				if out.writes > max(limit, 0) || more != (len(ready)-n > 0) {
					t.Fatalf("%d writes, limit %d, more %v", out.writes, limit, more)
				}
				last, sum := -1, 0
				for _, grp := range out.groups {
					if grp.Index <= last || grp.Count < 1 || grp.Count > most {
						t.Fatalf("group %+v behind slot %d", grp, last)
					}
					next := grp.Index
					var want plan
					for range grp.Count {
						it, ok := ready[next]
						if !ok || want.full() {
							t.Fatalf("group %+v: slot %d", grp, next)
						}
						delete(ready, next)
						for j := range it.run {
							used[next+j] = false
						}
						last = next
						want.add(next*g.SlotSize, next*g.SlotSize+64+it.length)
						next += it.run
					}
					if err := want.check(grp); err != nil {
						t.Fatal(err)
					}
					// It is as long as it can be.
					if _, ok := ready[next]; ok && grp.Count < most && !want.full() && out.writes < limit {
						t.Fatalf("group %+v ends before the ready slot %d", grp, next)
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
	for _, grp := range out.groups {
		fmt.Printf("%+v %#x\n", grp.Group, uint32(grp.Imm()))
	}
	// Output:
	// 4 false
	// {Index:4 Count:3 From:512 Bytes:458} 0x403
	// {Index:12 Count:1 From:1536 Bytes:128} 0xc01
}

// Answers that are far shorter than their runs go out without what is between them,
// and as one group.
func ExampleGroup() {
	g := slots.Geometry{SlotSize: 4096, Slots: 64, MaxRun: 8}
	p := groupsend.NewAnswers(g, groupsend.MaxCount)
	for i := range 3 {
		p.Add(8*i, 8, 100)
	}
	var out poster
	fmt.Println(p.Plan(&out, 10))
	fmt.Println(out.groups[0].Count, "answers:", out.groups[0].writes)
	// Output:
	// 3 false
	// 3 answers: [{0 164} {32768 164} {65536 164}]
}
