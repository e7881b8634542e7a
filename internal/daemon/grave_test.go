package daemon

import (
	"errors"
	"testing"
)

// The place of a region is kept until the connections are closed by which peers could still come to it, however the
// sessions end meanwhile, and given up once.
func TestGraves(t *testing.T) {
	c := new(conductor)
	bulkIn := func(s *session) *bulk {
		return &bulk{domain: &domain{conductor: c}, session: s}
	}
	one, two, over := new(session), new(session), new(session)
	a, b, gone := bulkIn(one), bulkIn(two), bulkIn(two)
	ended := 0
	g := &grave{end: func() error { ended++; return errors.New("which is only said") }}
	g.left.Store(1)
	a.inter(one, g)
	b.inter(two, g)
	gone.inter(over, g) // that session has ended meanwhile
	g.leave(c)
	if ended != 0 {
		t.Fatal("it was given up with connections to it")
	}
	a.exhume(over)()
	closed := a.exhume(one)
	if ended != 0 {
		t.Fatal("it was given up before the connection was closed")
	}
	closed()
	a.exhume(one)()
	if ended != 0 {
		t.Fatal("it was given up with one connection to it left")
	}
	b.exhume(two)()
	if ended != 1 {
		t.Errorf("it was given up %d times", ended)
	}
}
