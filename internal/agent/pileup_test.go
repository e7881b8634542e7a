package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// What its caller has taken back does not wait any more: while a service stands still, callers that give up do not make the
// daemon keep more and more.
func TestCancelledRequestsDoNotPileUp(t *testing.T) {
	const calls = 5000
	for _, what := range []string{"nobody has mapped the lane", "the process has no room for hints", "callers wait for their turns"} {
		t.Run(what, func(t *testing.T) {
			s := newSide(t, nil)
			out, in := s.localLane(t)
			callers := []*rigWorker{s.addWorker(1), s.addWorker(4)}
			var service *rigWorker
			if what == "nobody has mapped the lane" {
				service = s.addWorker(rigService)
				s.d.Register(rigMethod, service.view)
			} else {
				service = s.addService() // which handles nothing
			}
			if what == "callers wait for their turns" {
				service.view.Handlers = 1
			}
			call := func(w *rigWorker) *rigCall {
				c := s.signedCall(t, w, out.Ring)
				s.d.modest = true // callers never have much under way
				settle(s)
				return c
			}
			for i := range 24 { // these wait for the service, as long as it takes
				call(callers[i%2])
			}
			for i := range calls {
				w := callers[i%2]
				c := call(w)
				s.cancel(t, w, out.Ring, w.id, c.name())
				if got := c.status(t); got != slots.StatusNotExecuted {
					t.Fatalf("request %d ended with %v", i, got)
				}
				out.Ring.Consume(c.u)
				for _, w := range callers {
					for more := true; more; { // as clients do
						_, more = w.rings.Down.Pop()
					}
				}
			}
			m := s.d.Method(rigMethod)
			kept := cap(m.queue.list)
			for _, l := range m.turns.callers {
				kept += cap(l.list)
			}
			t.Logf("%d requests are under way; %d are in the queue, %d wait for turns", in.Busy, m.queue.len(), m.turns.n)
			if most := 4 * out.geo.Slots; kept > most {
				t.Errorf("the daemon keeps room for %d requests that wait, where there are %d slots", kept, out.geo.Slots)
			}
		})
	}
}
