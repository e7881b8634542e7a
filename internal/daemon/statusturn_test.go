package daemon

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

// However many ask for the status at once, an agent has no more than one part of one to do between two cycles: each looks
// at all lanes.
func TestStatusIsCollectedInTurns(t *testing.T) {
	c, err := newConductor(parsed(t, ""), 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	a := c.agents[0]
	started, busy := make(chan struct{}), make(chan struct{})
	a.Commands.Do(func() {
		close(started)
		<-busy
	})
	<-started
	const asking = 50
	var all sync.WaitGroup
	for range asking {
		all.Go(func() { c.status() })
	}
	eventually(t, "all ask", func() error {
		stacks := make([]byte, 4<<20)
		if n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ".(*conductor).status("); n < asking {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	waiting := func() int {
		stacks := make([]byte, 4<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "agent.(*CommandQueue).Call(")
	}
	eventually(t, "one has come to the agent", func() error {
		if waiting() == 0 {
			return errors.New("none has")
		}
		return nil
	})
	if n := waiting(); n > 1 {
		t.Errorf("%d parts of statuses wait for the agent", n)
	}
	close(busy)
	all.Wait()
}
