package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// What goes with a request arrives beside it, whatever the way and the size of the request,
// and the handler sees the request as if nothing went with it.
func TestCarry(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s := serve(t, b, 2, handlers{
		"both": func(c *server.Call) error {
			return c.Reply(append(append(bytes.Clone(c.Carried()), '|'), c.Request()...))
		},
		// In place, as Call.Answer promises.
		"place": func(c *server.Call) error {
			n := len(c.Request())
			if c.Answer(n) == nil && n > 0 {
				return errors.New("no room")
			}
			return nil
		},
		"context": func(c *server.Call) error {
			c.SetContext(context.WithValue(c.Context(), carryKey{}, "shown"))
			v, _ := c.Context().Value(carryKey{}).(string)
			return c.Reply([]byte(v))
		},
	})
	if err := s.HandleStream("t", "stream", func(st *server.Stream) error {
		st.SetContext(context.WithValue(st.Context(), carryKey{}, "shown"))
		msg, err := st.Recv()
		if err != nil {
			return err
		}
		v, _ := st.Context().Value(carryKey{}).(string)
		return st.Send(append(append(bytes.Clone(st.Carried()), msg...), v...))
	}); err != nil {
		t.Fatal(err)
	}
	c := attach(t, a)
	for _, carried := range []string{"", "c", strings.Repeat("long", client.MaxCarried/4)} {
		m := method(t, c, "b/t/both").With(client.Carry([]byte(carried)))
		for _, size := range []int{0, 1, 63, 64, 65, 4000, 4032, 100_000, 3 << 20} {
			req := bytes.Repeat([]byte("r"), size)
			want := carried + "|" + string(req)
			check := func(how string, got []byte, err error) {
				t.Helper()
				if err != nil || string(got) != want {
					t.Errorf("%s of %d bytes with %d: %d bytes, %v", how, size, len(carried), len(got), err)
				}
			}
			got, err := m.Call(t.Context(), req)
			check("call", got, err)
			if size < 60_000 {
				r, err := m.Reserve(t.Context(), size)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Bytes()) != size {
					t.Errorf("room for %d bytes, want %d", len(r.Bytes()), size)
				}
				copy(r.Bytes(), req)
				f, err := r.Commit()
				if err != nil {
					t.Fatal(err)
				}
				got, err = f.Wait(t.Context())
				check("reserved", got, err)
			}
			list, err := m.CallBatch(t.Context(), [][]byte{req, req})
			if err != nil {
				t.Fatal(err)
			}
			check("batch", list[1].Answer, list[1].Err)
			place, err := method(t, c, "b/t/place").With(client.Carry([]byte(carried)), client.AnswerSize(size)).Call(t.Context(), req)
			if size < 60_000 && (err != nil || !bytes.Equal(place, req)) {
				t.Errorf("in place, %d bytes with %d: %d bytes, %v", size, len(carried), len(place), err)
			}
		}
		got, err := m.With(client.Ordered(7)).Call(t.Context(), []byte("x"))
		if err != nil || string(got) != carried+"|x" {
			t.Errorf("ordered: %q, %v", got, err)
		}
		st, err := method(t, c, "b/t/stream").With(client.Carry([]byte(carried))).StreamWith(t.Context(), []byte("first"))
		if err != nil {
			t.Fatal(err)
		}
		if msg, err := st.Recv(t.Context()); err != nil || string(msg) != carried+"firstshown" {
			t.Errorf("stream: %q, %v", msg, err)
		}
		if _, err := st.Recv(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("end of the stream: %v", err)
		}
	}
	// More than may go: the request goes without.
	got, err := method(t, c, "b/t/both").With(client.Carry(make([]byte, client.MaxCarried+1))).Call(t.Context(), []byte("x"))
	if err != nil || string(got) != "|x" {
		t.Errorf("too much: %q, %v", got, err)
	}
	if got, err = c.Call(t.Context(), "b/t/context", nil); err != nil || string(got) != "shown" {
		t.Errorf("context: %q, %v", got, err)
	}
}

type carryKey struct{}
