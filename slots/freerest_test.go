package slots_test

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// A daemon that takes over frees what is left of a run that the last one was freeing, and nothing of what others have claimed
// in its place since.
func TestFreeRest(t *testing.T) {
	for freed := range 4 {
		ring, mem := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
		u, err := ring.Claim(1, 4)
		if err != nil {
			t.Fatal(err)
		}
		w := slots.MakeWord(slots.Taken, 4, 1, u.Ticket)
		setWord(mem, u.Index, w)
		for j := 3; j > 3-freed; j-- { // as Free, which is interrupted
			setWord(mem, u.Index+j, slots.MakeWord(slots.Free, 0, 0, ring.Word(u.Index+j).Ticket()))
		}
		// The same process has claimed what was free, or another one, as one run.
		for _, owner := range []int{1, 2} {
			var others []slots.Word
			for j := 4 - freed; j < 4; j++ {
				state, run := slots.Follow, j-(4-freed)
				if run == 0 {
					state, run = slots.Claim, freed
				}
				others = append(others, slots.MakeWord(state, run, owner, ring.Word(u.Index+j).Ticket()+1))
				setWord(mem, u.Index+j, others[len(others)-1])
			}
			setWord(mem, u.Index, w)
			ring.FreeRest(u.Index, w)
			for j := range 4 {
				got := ring.Word(u.Index + j)
				if mine := j < 4-freed; mine && got.State() != slots.Free || !mine && got != others[j-(4-freed)] {
					t.Errorf("%d slots freed and claimed by %d: slot %d is %v", freed, owner, j, got)
				}
			}
			ring.FreeRest(u.Index, w) // it has another word by now
			for k, o := range others {
				if got := ring.Word(u.Index + 4 - freed + k); got != o {
					t.Errorf("%d slots freed and claimed by %d: slot %d is %v after another look", freed, owner, 4-freed+k, got)
				}
			}
		}
	}
}
