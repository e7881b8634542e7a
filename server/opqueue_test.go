package server

import (
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// When the daemon's core is followed by another, the operations that it had taken and not
// answered end as lost; the others get their results.
func TestOperationsLostWithACore(t *testing.T) {
	const answered, taken, all = 2, 6, 10
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	var q opQueue
	q.init(&attach.Session{Ops: slots.NewOpRing(mem), Bells: slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize)), Bell: bell})
	for range 3 { // a number of an operation is used again, and a third core comes
		core := slots.ResumeOpRing(mem)
		before := core.Taken()
		numbers := make([]uint16, all)
		for i := range numbers {
			if numbers[i], err = q.submit(&slots.Op{Kind: slots.OpRead}); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		var results [all]slots.Result
		for i, n := range numbers {
			wg.Go(func() { results[i] = q.wait(n) })
		}
		var o slots.Op
		for n := range taken {
			if ok, _ := core.Next(&o); !ok {
				t.Fatal("no operation")
			}
			if n < answered {
				core.Complete(&slots.Result{Cookie: o.Cookie, Value: 1})
			}
		}
		core.Wake()
		core = slots.ResumeOpRing(mem)
		if n := core.Taken() - before; n != taken {
			t.Fatalf("%d taken", n)
		}
		q.resumed(core.Taken())
		for range all - taken {
			if ok, _ := core.Next(&o); !ok {
				t.Fatal("no operation")
			}
			core.Complete(&slots.Result{Cookie: o.Cookie, Value: 2})
		}
		core.Wake()
		wg.Wait()
		for i, r := range results {
			switch {
			case i < answered && (r.Status != slots.OpOK || r.Value != 1),
				i >= answered && i < taken && r.Status != slots.OpLost,
				i >= taken && (r.Status != slots.OpOK || r.Value != 2):
				t.Errorf("operation %d: %+v", i, r)
			}
		}
	}
}
