package agent

import "testing"

// A process may have what it ends in a while only as long as those who call have alike much under
// way: then the order in which they come gives none of them more than turns would.
func TestRoomWhileCallersAreAlike(t *testing.T) {
	const quick = 100_000 // requests ended in a crowdTime, 4000 in an aheadTime
	for _, c := range []struct {
		name  string
		open  []uint32 // bytes, of each caller
		ended int
		want  int // besides what the handlers work on
	}{
		{"alike", []uint32{64 << 10, 40 << 10, 33 << 10}, quick, 4000},
		{"alike, one does nothing", []uint32{64 << 10, 0, 33 << 10}, quick, 4000},
		{"alike, slow handlers", []uint32{64 << 10, 64 << 10}, 1000, spareRoom},
		{"alike, and modest", []uint32{1024, 1024, 1024}, quick, 4000},
		{"alike, modest, slow handlers", []uint32{1024, 1024, 1024}, 100, shortRoom},
		{"one has less", []uint32{64 << 10, 64 << 10, 31 << 10}, quick, spareRoom},
		{"one has more", []uint32{8192, 8192, 16385}, quick, spareRoom},
		{"one modest, with a request in twenty", []uint32{64 << 10, 64 << 10, 1024}, quick, spareRoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSide(t, nil)
			_, in := s.localLane(t)
			w := s.addService().view
			w.Handlers = 8
			s.d.judged, s.d.now = 1, 1+int64(crowdTime)
			m := s.d.MethodFor(rigMethod)
			for i, open := range c.open {
				u := &in.callers[11+i]
				u.given, u.open, u.most = open, open, open
				if open > 0 {
					u.requests = min(open/1024, 10)
				}
				m.crowd.note(caller{in, uint16(11 + i)}, s.d.now)
			}
			in.callers[11].given = callerBytes
			in.lastCaller = uint16(10 + len(c.open))
			w.ended = c.ended
			s.d.judge()
			for w.outstanding = 0; m.room(w, caller{in, 11}, s.d); w.outstanding++ {
				if w.outstanding > 1<<16 {
					t.Fatal("there is room for ever")
				}
			}
			if n := w.outstanding - w.Handlers; n != c.want {
				t.Errorf("%d requests besides those in the handlers, want %d", n, c.want)
			}
			if w.ended != 0 {
				t.Errorf("%d ended requests are counted again", w.ended)
			}
		})
	}
}
