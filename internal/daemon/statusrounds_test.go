package daemon

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/status"
)

// Whoever asks while a status is collected gets the next one, and all of them together the same: nobody, who may have just put
// the node out of service, gets what was collected before, and nobody waits for what others have asked.
func TestStatusForAllWhoAsk(t *testing.T) {
	var r statusRounds
	collecting, goOn := make(chan struct{}), make(chan struct{})
	collected := 0
	collect := func() *status.Node { // never two at a time, or the race detector says so
		collected++
		collecting <- struct{}{}
		<-goOn
		return &status.Node{UptimeS: float64(collected)}
	}
	var all sync.WaitGroup
	all.Go(func() {
		if s := r.get(collect); s.node.UptimeS != 1 {
			t.Errorf("the first one got collection %v", s.node.UptimeS)
		}
	})
	<-collecting
	const asking = 200
	for range asking {
		all.Go(func() {
			s := r.get(collect)
			if s.node.UptimeS != 2 {
				t.Errorf("one who asked meanwhile got collection %v", s.node.UptimeS)
			}
			if text, err := s.encoded(); err != nil || len(text) == 0 {
				t.Errorf("as JSON it is %q, %v", text, err)
			}
		})
	}
	eventually(t, "they wait", func() error {
		stacks, n := make([]byte, 4<<20), 0
		for _, one := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(one, ".(*statusRounds).get(") && (strings.Contains(one, " [chan receive") || strings.Contains(one, " [sync.Mutex.Lock")) {
				n++
			}
		}
		if n < 1+asking {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	goOn <- struct{}{}
	<-collecting
	goOn <- struct{}{}
	all.Wait()
	if collected != 2 {
		t.Errorf("%d collections, want 2", collected)
	}
}
