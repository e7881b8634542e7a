package server

import (
	"bytes"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// A part that is being dealt with keeps the bytes of its exchange from being another's, also
// when the exchange ends meanwhile.
func TestBlockOutlastsExchange(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	s, err := Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x, pool := &s.exchanges, &s.session.Pool
	b := pool.Take(t.Context(), 1<<20)
	e := &serverExchange{method: 7, bytes: 1 << 20, request: &largeRequest{}}
	if ok, why := x.add(e); !ok {
		t.Fatal(why)
	}
	if !x.keep(e, b) {
		t.Fatal("the exchange is open")
	}
	if found, _ := x.find(e.id, 8); found != nil {
		t.Error("found by another method")
	}
	found, held := x.find(e.id, 7)
	if found != e || held != b {
		t.Fatalf("found %p with %p", found, held)
	}
	x.remove(e)
	if pool.Kept(1<<20) != nil {
		t.Fatal("the block is another's while a part uses it")
	}
	held.Release()
	if pool.Kept(1<<20) != b {
		t.Error("the block is lost")
	}
	if x.keep(e, b) {
		t.Error("an exchange that is over has been given a block")
	}
	b.Release()
}

// What a handler has got for an answer stays as it is until the handler returns, whatever it
// asks for next: it may copy from there.
func TestAnswersOfOneCall(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	s, err := Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := &Call{server: s}
	first := c.overflowRoom(1 << 20)
	first[0], first[1<<20-1] = 3, 4
	if again := c.overflowRoom(300 << 10); &again[0] != &first[0] || len(again) != 300<<10 {
		t.Error("a smaller answer has other memory")
	}
	larger := c.overflowRoom(4 << 20)
	if copy(larger, bytes.Repeat([]byte{9}, len(larger))); first[0] != 3 || first[1<<20-1] != 4 {
		t.Error("the first answer was overwritten by the second")
	}
	if s.session.Pool.Kept(1<<20) != nil {
		t.Error("the first answer's block is another's")
	}
	c.releaseBlocks()
	if s.session.Pool.Kept(1<<20) == nil || s.session.Pool.Kept(4<<20) == nil || c.overflowIn != nil {
		t.Error("blocks are lost")
	}
	if small := c.overflowRoom(5000); len(small) != 5000 || c.overflowIn != nil {
		t.Error("a small answer is in a block")
	}
}
