package depot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Items are in the order in which they have come, whichever of them have gone.
func TestInOrder(t *testing.T) {
	var o inOrder
	var want []string
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 2000 {
		key := fmt.Sprint(rnd.IntN(50))
		if i := slices.Index(want, key); i >= 0 {
			if got := o.get(key); got == nil || got.Key != key {
				t.Fatalf("step %d: item %s is %v", n, key, got)
			}
			o.remove(key)
			want = slices.Delete(want, i, i+1)
		} else {
			if got := o.get(key); got != nil {
				t.Fatalf("step %d: item %s, which is not there, is %v", n, key, got)
			}
			o.remove(key) // there is none
			o.add(&Item{Key: key})
			want = append(want, key)
		}
		var got []string
		for i := range o.all() {
			got = append(got, i.Key)
		}
		if !slices.Equal(got, want) || o.len() != len(want) {
			t.Fatalf("step %d: %v, %d of them; want %v", n, got, o.len(), want)
		}
	}
}
