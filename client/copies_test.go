package client_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// place says in what memory of this process bytes are: "slots" of a ring, a "region", or
// "own" memory.
func place(t *testing.T, b []byte) string {
	t.Helper()
	if cap(b) == 0 {
		return "nowhere"
	}
	at, err := strconv.ParseUint(strings.TrimPrefix(fmt.Sprintf("%p", b), "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil || at < from || at >= to {
			continue
		}
		switch {
		case strings.Contains(line, "memfd:rdmad-lane"):
			return "slots"
		case strings.Contains(line, "memfd:rdmad-region"):
			return "region"
		}
		return "own"
	}
	t.Fatalf("%#x is nowhere", at)
	return ""
}

// copies counts how often the bytes of a path are copied by the library: once between two
// places of which one is this process's own, and never within the slots.
func copies(path ...string) (n int) {
	for i := 1; i < len(path); i++ {
		if path[i] != path[i-1] {
			n++
		}
	}
	return n
}

// The places through which a request and its answer go are those that docs/semantics.md
// names, for every style of call: what is in slots on both sides was not copied by a
// library on the way, and what is not, once.
func TestCopies(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	// Where the handler saw the request, and made its answer.
	seen := make(chan [2]string, 1)
	serve(t, b, 1, handlers{"look": func(c *server.Call) error {
		n, request := len(c.Request()), place(t, c.Request())
		answer := c.Answer(n)
		for i := range answer {
			answer[i] = 'x'
		}
		seen <- [2]string{request, place(t, answer)}
		return nil
	}})
	c := attach(t, a)
	m := method(t, c, "b/t/look").With(client.AnswerSize(960))
	small, large := bytes.Repeat([]byte("x"), 900), bytes.Repeat([]byte("x"), 3<<20)
	own, err := c.AllocRegion(t.Context(), 2*len(large))
	if err != nil {
		t.Fatal(err)
	}
	there, room := own.Bytes()[:len(large)], own.Bytes()[len(large):]
	copy(there, large)
	parts := m.With(client.Rendezvous(1 << 30))
	got := "nowhere"
	keep := func(answer []byte, err error) error {
		got = place(t, answer)
		return err
	}
	for _, style := range []struct {
		name string
		from string // where the caller has the request
		do   func() error
		// via is the caller's memory that its daemon sends from and receives into.
		via string
		// up and down are how often the bytes of the request and of the answer are
		// copied between the caller's memory and the handler's.
		up, down int
	}{
		{"Call", "own", func() error { return keep(m.Call(t.Context(), small)) }, "slots", 1, 1},
		{"CallInto", "own", func() error { return keep(m.CallInto(t.Context(), small, make([]byte, 0, 1000))) }, "slots", 1, 1},
		{"CallFunc", "own", func() error {
			return m.CallFunc(t.Context(), small, func(answer []byte) error { return keep(answer, nil) })
		}, "slots", 1, 0},
		{"CallBatch", "own", func() error {
			rs, err := m.CallBatch(t.Context(), [][]byte{small})
			if err == nil {
				err = keep(rs[0].Answer, rs[0].Err)
			}
			return err
		}, "slots", 1, 1},
		{"Go", "own", func() error {
			f, err := m.Go(t.Context(), small)
			if err == nil {
				err = keep(f.Wait(t.Context()))
			}
			return err
		}, "slots", 1, 1},
		{"GoTo", "own", func() error {
			q := c.NewQueue()
			err := m.GoTo(t.Context(), q, small, 1)
			for _, r := range q.All(t.Context()) {
				err = keep(r.Answer, r.Err)
			}
			return err
		}, "slots", 1, 1},
		{"Reserve", "slots", func() error {
			r, err := m.Reserve(t.Context(), len(small))
			if err != nil {
				return err
			}
			if p := place(t, r.Bytes()); p != "slots" {
				t.Errorf("Reserve: the request is to be written in %s", p)
			}
			f, err := r.Commit()
			if err == nil {
				err = keep(f.Wait(t.Context()))
			}
			return err
		}, "slots", 0, 1},
		// The handler's process has large messages in regions: into slots and out of them, or
		// without a copy.
		{"large in parts", "own", func() error { return keep(parts.Call(t.Context(), large)) }, "slots", 2, 2},
		{"large by region", "own", func() error { return keep(m.Call(t.Context(), large)) }, "region", 1, 1},
		{"large by CallFunc", "own", func() error {
			return m.CallFunc(t.Context(), large, func(answer []byte) error { return keep(answer, nil) })
		}, "region", 1, 0},
		{"large between regions of the caller's", "region", func() error {
			answer, err := m.CallInto(t.Context(), there, room[:0])
			if err == nil && (&answer[0] != &room[0] || !bytes.Equal(answer, large)) {
				t.Error("another answer, or in another place")
			}
			return keep(answer, err)
		}, "region", 0, 0},
	} {
		if err := style.do(); err != nil {
			t.Errorf("%s: %v", style.name, err)
			continue
		}
		handler := <-seen
		up, down := []string{style.from, style.via, handler[0]}, []string{handler[1], style.via, got}
		if copies(up...) != style.up || copies(down...) != style.down {
			t.Errorf("%s: request by %v, answer by %v; want %d and %d copies", style.name, up, down, style.up, style.down)
		}
	}
}
