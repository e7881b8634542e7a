package slots_test

import (
	"bytes"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// The bytes are those of docs/protocol.md.
func TestName(t *testing.T) {
	list := slots.AppendName([]byte{9}, 0x030201, 0x0807060504)
	if want := []byte{9, 1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(list, want) {
		t.Errorf("% x, want % x", list, want)
	}
	if len(list) != 1+slots.NameSize {
		t.Errorf("%d bytes", len(list))
	}
	for _, n := range []struct {
		index  int
		ticket uint64
	}{{0, 0}, {5, slots.TicketMask}, {1<<24 - 1, 1}} {
		if index, ticket := slots.ReadName(slots.AppendName(nil, n.index, n.ticket)); index != n.index || ticket != n.ticket {
			t.Errorf("slot %d, ticket %d became slot %d, ticket %d", n.index, n.ticket, index, ticket)
		}
	}
}
