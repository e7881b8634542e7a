package daemon

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/peerauth"
)

// A better fabric is tried again also if it came to be offered while the nodes shook hands: neither
// had offered it then.
func TestFailbackAfterALongHandshake(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.fabrics = append([]*fabrics.Fabric{{Name: "verbs"}}, r.fabrics...)
	for _, offered := range []bool{true, false} {
		troubled := &trouble{until: time.Now().Add(time.Hour)}
		r.link.troubles["verbs"] = troubled
		if offered {
			delete(r.link.troubles, "verbs")
		}
		mine := r.hello(r.link).Hello
		r.link.troubles["verbs"] = troubled
		troubled.until = time.Now() // by now it is offered
		h := *mine
		h.Node, h.Session, h.Fabrics = "a", 8, []string{tcp.Name}
		ours, theirs := net.Pipe()
		ch := &peerauth.Channel{Conn: ours, Raw: ours}
		s, err := newSession(r.link, ch, bufio.NewReader(ch), &h, mine, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.link.failback(s) // it returns, whatever it does
		if again := s.Reason() != nil; again == offered {
			t.Errorf("the link has offered the better fabric: %v; it is tried again: %v (%v)", offered, again, s.Reason())
		}
		s.end(errStopping)
		_ = theirs.Close()
	}
}
