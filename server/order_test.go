package server

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/slots"
)

// Against a model: of each order one request at a time may start, in the order in which
// they came; orders do not wait for each other; none is lost.
func TestOrdersMatchTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o orders
		next := slots.Hint(1)
		waiting := map[orderKey][]slots.Hint{} // the first one may start, or is running
		running := map[orderKey]bool{}
		var ready []orderKey // in the order in which they became so
		// Some have the same hash.
		keys := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 2000), 1, 40, rapid.ID[uint64]).Draw(t, "keys")
		key := func(t *rapid.T) orderKey { return orderKey(rapid.SampledFrom(keys).Draw(t, "key")) }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := key(t)
				o.add(k, next)
				if waiting[k] = append(waiting[k], next); len(waiting[k]) == 1 {
					ready = append(ready, k)
				}
				next++
			},
			"take": func(t *rapid.T) {
				k, h, ok := o.take()
				if ok != (len(ready) > 0) {
					t.Fatalf("took %v of %d that may start", ok, len(ready))
				}
				if !ok {
					return
				}
				if k != ready[0] || h != waiting[k][0] || running[k] {
					t.Fatalf("took %d of order %d, want %d of %d", h, k, waiting[ready[0]][0], ready[0])
				}
				running[k], ready = true, ready[1:]
			},
			"done": func(t *rapid.T) {
				k := key(t)
				if !running[k] {
					return
				}
				o.done(k)
				delete(running, k)
				if waiting[k] = waiting[k][1:]; len(waiting[k]) > 0 {
					ready = append(ready, k)
				}
			},
			"": func(t *rapid.T) {
				n, rows := 0, 0
				for k, w := range waiting {
					if n += len(w); len(w) > 0 {
						rows++
					}
					if (o.find(k) != 0) != (len(w) > 0) {
						t.Fatalf("order %d has %d requests, row %d", k, len(w), o.find(k))
					}
				}
				free := func(first int32, next func(int32) int32) (n int) {
					for ; first != 0; first = next(first) {
						n++
					}
					return n
				}
				nodes := free(o.freeNode, func(i int32) int32 { return o.nodes[i].next })
				if used := max(0, len(o.nodes)-1) - nodes; used != n-len(running) {
					t.Fatalf("%d nodes are in use for %d requests", used, n-len(running))
				}
				if used := max(0, len(o.rows)-1) - free(o.freeRow, func(i int32) int32 { return o.rows[i].next }); used != rows {
					t.Fatalf("%d rows are in use for %d orders", used, rows)
				}
			},
		})
	})
}

func TestOrdersAllocateNothing(t *testing.T) {
	var o orders
	round := func() {
		for k := range orderKey(100) {
			for range 10 {
				o.add(k+1, slots.Hint(k))
			}
		}
		for {
			k, _, ok := o.take()
			if !ok {
				return
			}
			o.done(k)
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
