package daemon

import (
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// An attach id is not used again before the peers have heard that its last owner is gone.
func TestIDsOfTheGone(t *testing.T) {
	a, err := agent.New("test", agent.IdleStrategy{}, 16, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	a.Start(&running)
	defer running.Wait()
	defer a.Commands.Do(func() { a.Stop = true })
	d := &domain{
		conductor: &conductor{cfg: &config.Config{Limits: config.Limits{Workers: 10}}}, agent: a,
		view:    agent.NewDomain(a, slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize))),
		workers: map[int]*worker{}, leaving: map[int]int{1: 1, 2: 1, 4: 2}, lastID: slots.MaxOwner - 1,
	}
	for _, want := range []int{slots.MaxOwner, 3, 5} {
		if id, err := d.freeID(&worker{pid: 1}); id != want || err != nil {
			t.Errorf("id %d, %v, want %d", id, err, want)
		}
	}
}
