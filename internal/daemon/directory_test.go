package daemon

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// However often it changes what a node serves, and although its peer does not read, nobody waits for
// the peer, and the peer is told of what there is at the end, once.
func TestDirectoryOfCrowdsOfMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		c := &conductor{ctx: ctx, changed: make(chan struct{})}
		d := &domain{name: "d", methods: map[methodKey]*method{}}
		c.domains.Store(&[]*domain{d})
		l := &link{conductor: c, name: "b"}
		s := &session{life: context.Background(), endLife: func() {}, link: l, conn: &peerauth.Channel{Conn: here, Raw: here}, stale: make(chan struct{}, 1), done: make(chan struct{})}
		l.session, c.links = s, map[string]*link{"b": l}

		began := time.Now()
		const methods = 1000
		for i := range methods {
			c.mu.Lock()
			d.methods[methodKey{"s", fmt.Sprint(i)}] = &method{id: uint32(i), workers: map[*worker]bool{{}: true}}
			c.mu.Unlock()
			c.directoryChanged()
			if i == 0 {
				synctest.Wait() // until it is on its way, and the peer does not read
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("somebody waited %v for the peer", took)
		}
		r := bufio.NewReader(there)
		read := func() int {
			t.Helper()
			m, err := peerproto.Read(r, peerproto.MaxFrame)
			if err != nil {
				t.Fatal(err)
			}
			return len(m.Directory)
		}
		for _, want := range []int{1, methods} {
			if n := read(); n != want {
				t.Errorf("a directory of %d methods, want %d", n, want)
			}
		}
		// It is not told the next as soon as it has read one that was long.
		told := time.Now()
		for range 10 {
			c.directoryChanged()
		}
		if n := read(); n != methods {
			t.Errorf("a directory of %d methods, want %d", n, methods)
		}
		if took := time.Since(told); took != methods*directoryPace {
			t.Errorf("the next directory after %v, want %v", took, methods*directoryPace)
		}
		// Nor of one that is short: a worker may change it as often as it likes.
		c.mu.Lock()
		clear(d.methods)
		d.methods[methodKey{"s", "m"}] = &method{workers: map[*worker]bool{{}: true}}
		c.mu.Unlock()
		c.directoryChanged()
		for range 3 {
			if n := read(); n != 1 {
				t.Errorf("a directory of %d methods, want 1", n)
			}
			told = time.Now()
			c.directoryChanged()
		}
		if n := read(); n != 1 || time.Since(told) != directoryFloor {
			t.Errorf("a directory of %d methods after %v, want one after %v", n, time.Since(told), directoryFloor)
		}
		// Who waits with news for the peer ends with the session, or with the node.
		c.directoryChanged()
		synctest.Wait()
		cancel()
		c.tasks.Wait()
		_ = here.Close()
		_ = there.Close()
	})
}
