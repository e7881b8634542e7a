package client_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	protocol "github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// ageTickets makes every slot of all lanes one whose ticket is soon 0 again. The lanes
// must be new.
func ageTickets(t *testing.T, v *vandal) {
	t.Helper()
	for id, l := range v.lanes {
		for i := range l.Geometry.Slots {
			word := shm.Uint64At(v.segs[id].Bytes(), shm.HeaderSize+0x1000+8*i)
			if !word.CompareAndSwap(0, uint64(slots.MakeWord(slots.Free, 0, 0, slots.TicketMask-2))) {
				t.Fatalf("slot %d was in use: %v", i, slots.Word(word.Load()))
			}
		}
	}
}

// Where tickets start again from 0, in the middle of all kinds of requests, nothing is
// done twice and nothing gets stuck: neither in a lane to another node nor in one within
// the node, with answers that are spilled among them.
func TestTicketsComeRound(t *testing.T) {
	for _, node := range []string{"b", "a"} {
		t.Run("to "+node, func(t *testing.T) {
			a, b := daemontest.Pair(t, impatient+tiny)
			at := map[string]*daemontest.Node{"a": a, "b": b}[node]
			var posted, called atomic.Int64
			serve(t, at, 4, handlers{
				"post": func(*server.Call) error { posted.Add(1); return nil },
				"seen": func(c *server.Call) error {
					called.Add(1)
					return c.Reply(c.Request())
				},
			})
			c := attach(t, a)
			method(t, c, node+"/t/seen") // opens the lanes; nothing is sent
			ageTickets(t, newVandal(t, a, node, "t", "seen"))
			seen, post, echo := method(t, c, node+"/t/seen"), method(t, c, node+"/t/post"), method(t, c, node+"/t/echo")
			const callers, rounds = 4, 60
			var all sync.WaitGroup
			for k := range callers {
				all.Go(func() {
					ordered := seen.With(client.Ordered(uint64(k)))
					for n := range rounds {
						req := pattern(n%64, uint64(k))
						for _, m := range []*client.Method{seen, ordered} {
							if got, err := m.Call(t.Context(), req); err != nil || !bytes.Equal(got, req) {
								t.Errorf("call %d: %x, %v", n, got, err)
							}
						}
						if err := post.Post(t.Context(), req); err != nil {
							t.Error(err)
						}
						long := pattern(100*(n%12), uint64(n))
						if got, err := echo.Call(t.Context(), long); err != nil || !bytes.Equal(got, long) {
							t.Errorf("call of %d bytes: %d, %v", len(long), len(got), err)
						}
						soon, cancel := context.WithTimeout(t.Context(), time.Duration(n)*10*time.Microsecond)
						_, _ = echo.Call(soon, long)
						cancel()
					}
				})
			}
			within(t, "calls", all.Wait)
			o := observe(t, a, node, "t", "seen")
			o.awaitHeld(t, 0, 0)
			if n := called.Load(); n != 2*callers*rounds {
				t.Errorf("%d handlers ran for %d calls", n, 2*callers*rounds)
			}
			if n := posted.Load(); n != callers*rounds {
				t.Errorf("%d handlers ran for %d messages", n, callers*rounds)
			}
			for i := range o.rings[0].Geometry().Slots / 2 { // the others are used less, where little is in use
				if w := o.rings[0].Word(i); w.Ticket() > slots.TicketMask/2 {
					t.Errorf("slot %d has not come round: %v", i, w)
				}
			}
			quiet(t, a, b)
			for _, n := range []*daemontest.Node{a, b} {
				st, err := n.Status(t.Context())
				if err != nil || st.Counters["protocol_errors"]+st.Counters["lane_failures"]+st.Counters["maybe_executed"] > 0 {
					t.Errorf("%v; %v", st.Counters, err)
				}
			}
		})
	}
}

// Attach ids are given out again when all have been, but not one that a request carries
// which is on its way still: its answer would be another's.
func TestAttachIDsComeRound(t *testing.T) {
	if testing.Short() {
		t.Skip("it attaches more than 4095 times")
	}
	a, b := daemontest.Pair(t, tiny)
	g := newGate()
	defer g.Open()
	serve(t, b, 4, handlers{"gate": g.handle})
	old, err := client.Attach(t.Context(), a.Socket)
	if err != nil {
		t.Fatal(err)
	}
	fs := outstanding(t, method(t, old, "b/t/gate"), 3)
	for range fs {
		<-g.entered
	}
	o := observe(t, a, "b", "t", "gate")
	id := 0
	for i := range o.rings[0].Geometry().Slots {
		if w := o.rings[0].Word(i); w.State() == slots.Taken {
			id = w.Owner()
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if n := o.held(id); n != 3 {
		t.Fatalf("worker %d has left %d slots", id, n)
	}
	var given [slots.MaxOwner + 1]atomic.Int32
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() {
			errs <- func() error {
				for range slots.MaxOwner/cap(errs) + 50 { // more than there are ids
					s, err := protocol.Open(t.Context(), a.Socket, protocol.Hello{Role: protocol.RoleClient, Name: "short"}, protocol.Events{})
					if err != nil {
						return err
					}
					given[s.Welcome.ID].Add(1)
					err = s.Close()
					s.Release()
					if err != nil {
						return err
					}
				}
				return nil
			}()
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	round, twice := 0, 0
	for k := range given {
		if n := given[k].Load(); n > 0 {
			round++
			if n > 1 {
				twice++
			}
		}
	}
	t.Logf("%d ids, %d of them twice", round, twice)
	if given[id].Load() > 0 || given[0].Load() > 0 || twice == 0 || round < slots.MaxOwner-20 {
		t.Errorf("id %d is on its way and was given to %d; %d ids, %d of them twice", id, given[id].Load(), round, twice)
	}
	// The next ones get their own answers, and the slots of the old one become free.
	c := attach(t, a)
	mine := outstanding(t, method(t, c, "b/t/gate"), 1)
	g.Open()
	for _, f := range mine {
		if got, err := f.Wait(t.Context()); err != nil || string(got) != "ok" {
			t.Errorf("%q, %v", got, err)
		}
	}
	o.awaitHeld(t, 0, 0)
	st, err := a.Status(t.Context())
	if err != nil || st.Counters["orphans"] != 3 {
		t.Errorf("%v, %v", st.Counters, err)
	}
}
