package agent

import (
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// However many workers submit however long lists, an agent accepts as much of them in a cycle as cycleOps
// says, exceeded by one worker, and carries out as many as a chunk's worth; all of them in the end, in turns.
func TestOperationsOfACycle(t *testing.T) { eachRig(t, operationsOfACycle) }

func operationsOfACycle(t *testing.T, x *regionRig) {
	const pieces, lists, workers = slots.MaxPieces, 16, 12
	var all []*rigWorker
	var calls []slots.Run
	var tables []*Region
	for i := range workers {
		w := x.b.addWorker(20 + i)
		w.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
		x.b.d.methods[x.b.d.MethodNumber(rigMethod)].workers = []*Worker{w.view}
		x.call(x.caller, whole(x.far, slots.RightWrite))
		settle(x.a, x.b)
		h, _ := w.rings.Down.Pop()
		u, ok := x.in.Ring.Pick(h.Index(), w.id)
		if !ok {
			t.Fatal("no call")
		}
		mine := x.addRegion(x.b, uint32(20+i), w.id)
		for k := range pieces {
			p := slots.Piece{Offset: uint64(k), Local: mine.ID, LocalOffset: 1 << 20}
			p.Encode(mine.Mem[k*slots.PieceSize:])
		}
		all, calls, tables = append(all, w), append(calls, u), append(tables, mine)
	}
	for i, w := range all {
		for range lists {
			x.submit(w, op(calls[i], slots.OpWriteList, 0, pieces, tables[i]))
		}
	}
	taken := make([]int, workers)
	for cycles, left := 0, workers*lists; left > 0; cycles++ {
		if cycles > 2*workers*lists {
			t.Fatalf("%d operations have no result", left)
		}
		accompany(x.b.a) // small steps
		x.b.a.cycle()
		if accepted := cycleOps - x.b.d.ops; accepted > cycleOps+workerOps {
			t.Fatalf("%d pieces were accepted in a cycle", accepted)
		}
		ended := 0
		for i, w := range all {
			for r := (slots.Result{}); w.ops.Take(&r); ended++ {
				if taken[i]++; r.Status != slots.OpOK {
					t.Fatalf("worker %d: %v", i, r.Status)
				}
			}
		}
		if most := chunkSize/(pieces*pieceCost) + 1; ended > most {
			t.Fatalf("%d lists of %d pieces were carried out in a cycle", ended, pieces)
		}
		for i := range all {
			if taken[0] > taken[i]+2*workerOps/pieces+2 { // it may be accepted twice before the others
				t.Fatalf("worker 0 has %d results, worker %d %d", taken[0], i, taken[i])
			}
		}
		left -= ended
	}
	for i, w := range all {
		answer := slots.Header{Ticket: calls[i].Ticket, Run: uint16(calls[i].Len), Kind: slots.KindAnswer}
		answer.Encode(x.in.Ring.Header(calls[i]))
		x.in.Ring.Finish(calls[i], w.id)
		w.rings.Up.Push(slots.MakeHint(rigLane, calls[i].Index, calls[i].Ticket))
		x.b.bells.MarkWorker(w.id)
	}
	settle(x.a, x.b)
}
