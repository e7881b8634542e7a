package daemon

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
)

// A process that has its answer may ask the next question, however many others it is sent lanes meanwhile: the place of the one that was
// answered, or put off, is free without what orders those.
func TestAnsweredQuestionsTakeNoPlace(t *testing.T) {
	const most = 4 * askPlaces
	for name, c := range map[string]struct{ adopted, crowded bool }{
		"a process":           {},
		"one of another core": {adopted: true},
		"one that is put off": {crowded: true},
		"both":                {adopted: true, crowded: true},
	} {
		t.Run(name, func(t *testing.T) {
			core := &conductor{cfg: &config.Config{Domains: make([]config.Domain, 1)}, log: zerolog.Nop(), node: "a"}
			w := &worker{
				domain: &domain{conductor: core, name: "d"}, adopted: c.adopted, gone: make(chan struct{}),
				asks: make(chan struct{}, askPlaces), asking: make(map[uint64]bool),
			}
			peer := w.connect(t)
			want := attach.TypePong
			if c.crowded {
				want = attach.TypeFail
				core.askRoom.waiting = map[string]int{"d": mostAsks}
				if err := w.takePlace(); err != nil { // by one that goes on waiting
					t.Fatal(err)
				}
			}
			w.mu.Lock()
			sending := sync.OnceFunc(w.mu.Unlock)
			t.Cleanup(core.tasks.Wait)
			t.Cleanup(sending)
			told := make(chan error, 1)
			stuck := time.NewTimer(2 * time.Minute)
			defer stuck.Stop()
			go func() {
				for seq := uint64(1); seq <= most; seq++ {
					if err := core.ask(w, &attach.Message{Type: attach.TypePing, Seq: seq, Node: "a"}); err != nil {
						told <- err
						return
					}
					m, _, err := peer.Recv()
					if err != nil {
						told <- err
						return
					}
					if m.Type != want || m.Seq != seq {
						told <- fmt.Errorf("question %d: %+v", seq, m)
						return
					}
				}
				told <- nil
			}()
			select {
			case err := <-told:
				if err != nil {
					t.Errorf("a question after others were answered: %v", err)
				}
			case <-stuck.C:
				t.Error("what the process asks waits for what it is sent")
			}
			sending()
			core.tasks.Wait()
			if n := len(w.asks); c.crowded && n != 1 || !c.crowded && n != 0 || len(w.asking) > 0 || len(w.later) > 0 {
				t.Errorf("%d places are taken; %d questions are remembered, %d are to be asked again", n, len(w.asking), len(w.later))
			}
		})
	}
}
