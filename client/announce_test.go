package client

import (
	"encoding/binary"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// An agent that sleeps is rung for once by a process that publishes many requests before the
// agent gets a processor, and again when it sleeps again.
func TestOneRingForEachSleep(t *testing.T) {
	mem := shm.AlignedBytes(slots.DomainSegmentSize)
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	l := &lane{id: 5, conn: &Conn{session: &attach.Session{Bells: slots.NewBells(mem), Bell: bell}}}
	agent := slots.NewBells(mem)
	for range 3 {
		agent.PrepareSleep()
		for range 64 {
			l.announce()
		}
		var rings [8]byte
		if n, err := shm.ReadFD(bell.FD(), rings[:]); n != len(rings) || err != nil || binary.LittleEndian.Uint64(rings[:]) != 1 {
			t.Errorf("64 requests ring %d times (%v), want once", binary.LittleEndian.Uint64(rings[:]), err)
		}
		agent.CancelSleep()
		if agent.TakeLanes(func(uint16) {}); agent.Dirty() {
			t.Error("a mark stays")
		}
		l.announce()
		if n, err := shm.ReadFD(bell.FD(), rings[:]); err == nil {
			t.Errorf("%d bytes: a ring for an agent that is awake", n)
		}
	}
}
