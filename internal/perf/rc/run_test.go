package rc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/perftest"
	"github.com/rdmad/rdmad/internal/perf/report"
)

func tool(size int) *Tool { return &Tool{Size: size, Seed: 7, PollTimeout: MaxPollTimeout} }

// Every operation moves its bytes in both directions, over every kind of device.
func TestRun(t *testing.T) {
	for name, p := range map[string]fabric.Provider{
		"tcp":     tcp.New(tcp.Config{}),
		"reorder": fabrictest.NewReorder(tcp.New(tcp.Config{}), 1),
		"faulty":  fabrictest.Faulty(tcp.New(tcp.Config{}), 1, fabrictest.Plan{Delay: 0.5}),
	} {
		for _, size := range []int{1, 4097, 300_001} {
			for _, event := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %d bytes, event %v", name, size, event), func(t *testing.T) {
					ask := tool(size)
					ask.Event = event
					r := perftest.Must(t, p, p, ask, new(Tool)).(*Result)
					var done []string
					for _, s := range r.Steps {
						done = append(done, s.Op+" by "+s.From)
						if s.Bytes != size || len(s.Digest) != 64 || s.Microseconds <= 0 {
							t.Errorf("%+v", s)
						}
					}
					want := "send by server, send by client, read by client, read by server, write by client, write by server"
					if got := strings.Join(done, ", "); got != want {
						t.Errorf("it has done %s, want %s", got, want)
					}
				})
			}
		}
	}
}

// A threshold is missed by the operation that misses it.
func TestJudge(t *testing.T) {
	r := &Result{Steps: []Step{{Bytes: 1 << 20, Microseconds: 1000}, {Bytes: 1 << 20, Microseconds: 4000}}}
	for _, c := range []struct {
		t    report.Thresholds
		miss int
	}{
		{report.Thresholds{MaxP99: 4 * time.Millisecond, MinBandwidth: 250}, 0},
		{report.Thresholds{MaxP99: 3 * time.Millisecond}, 1},
		{report.Thresholds{MinBandwidth: 251}, 1},
		{report.Thresholds{MinBandwidth: 1001, MaxP99: time.Microsecond}, 4},
	} {
		var missed *report.MissedError
		if err := r.Judge(c.t); errors.As(err, &missed) != (c.miss > 0) || missed != nil && len(missed.Missed) != c.miss {
			t.Errorf("%+v: %v", c.t, err)
		}
	}
}

// The result has the attributes of both ends, and all of them are printed.
func TestAttributes(t *testing.T) {
	p := tcp.New(tcp.Config{})
	r := perftest.Must(t, p, p, tool(100), new(Tool)).(*Result)
	if len(r.Client.Attributes) == 0 || len(r.Client.Attributes) != len(r.Server.Attributes) {
		t.Fatalf("%d attributes of the client, %d of the server", len(r.Client.Attributes), len(r.Server.Attributes))
	}
	// One side may know more.
	r.Server.Attributes = append(r.Server.Attributes, fabric.Attribute{Stage: "RTS", Name: "only_here", Value: "42"})
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, a := range append(r.Client.Attributes, r.Server.Attributes...) {
		if !strings.Contains(b.String(), a.Name) || !strings.Contains(b.String(), a.Value) {
			t.Errorf("%+v is not printed", a)
		}
	}
}

// A completion that does not come is told by what it was, after the time that the caller has
// given it.
func TestPollTimeout(t *testing.T) {
	for name, event := range map[string]bool{"busy": false, "event": true} {
		t.Run(name, func(t *testing.T) {
			ask := tool(100)
			ask.PollTimeout, ask.Event = time.Millisecond, event
			p := tcp.New(tcp.Config{})
			// The server never sends: the first step's arrival does not come.
			c, _ := perftest.Between(t, p, p, ask, &lazy{Tool: new(Tool)})
			if !errors.Is(c.Err, ErrPollTimeout) {
				t.Fatal(c.Err)
			}
			for _, words := range []string{"step 1 of 6, send by the server", "within 1ms", "arrival of the send", "--poll-timeout"} {
				if !strings.Contains(c.Err.Error(), words) {
					t.Errorf("it does not say %q: %v", words, c.Err)
				}
			}
		})
	}
}

// lazy is a server that comes to the first step and does nothing there.
type lazy struct{ *Tool }

func (l *lazy) Run(ctx context.Context, s *perf.Session) (any, error) {
	r, err := newRun(l.Tool, s)
	if err != nil {
		return nil, err
	}
	if _, _, err := r.attributes(ctx); err != nil {
		return nil, err
	}
	if err := s.Barrier(ctx); err != nil {
		return nil, err
	}
	return nil, s.Hear(ctx, kindVerdict, &verdict{})
}

// A server whose bytes are others is found out, whichever they are, by the client.
func TestOtherBytes(t *testing.T) {
	p := tcp.New(tcp.Config{})
	c, s := perftest.Between(t, p, p, tool(100), &lying{Tool: new(Tool)})
	var wrong *ContentError
	if !errors.As(c.Err, &wrong) || wrong.Where != "what has come" {
		t.Errorf("client: %v", c.Err)
	}
	if s.Err == nil {
		t.Error("the server has not learned of it")
	}
}

// lying is a server that has another seed.
type lying struct{ *Tool }

func (l *lying) Run(ctx context.Context, s *perf.Session) (any, error) {
	l.Seed++
	return l.Tool.Run(ctx, s)
}

// Any byte of a side's memory that is not what the step makes of it is found.
func TestInspect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := place{rapid.IntRange(1, 200).Draw(t, "size")}
		bytesOf := func(name string) []byte { return rapid.SliceOfN(rapid.Byte(), p.total(), p.total()).Draw(t, name) }
		before, given := bytesOf("before"), bytesOf("given")
		memory := bytes.Clone(before)
		if err := p.inspect(memory, before, nil); err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, p.total()-1).Draw(t, "byte")
		memory[at] ^= 1
		if err := p.inspect(memory, before, nil); err == nil {
			t.Fatal("a change is not noticed")
		}
		memory[at] ^= 1
		copy(memory[p.in():], given[p.out():p.out()+p.size])
		if err := p.inspect(memory, before, given); err != nil {
			t.Fatal(err)
		}
		memory[at] ^= 1
		if err := p.inspect(memory, before, given); err == nil {
			t.Fatalf("a change of byte %d of %d is not noticed", at, p.total())
		}
	})
}

// Wherever a connection breaks, both sides end with an error, and everything is released.
func TestBroken(t *testing.T) {
	before := leaktest.Descriptors(t)
	for after := 1; after <= 4; after++ {
		p := fabrictest.Faulty(tcp.New(tcp.Config{}), 3, fabrictest.Plan{DisconnectAfter: after, HalfWrite: true})
		c, s := perftest.Between(t, p, p, tool(5000), new(Tool))
		if c.Err == nil || s.Err == nil || perf.IsInput(c.Err) || perf.IsInput(s.Err) {
			t.Errorf("after %d work requests: client %v, server %v", after, c.Err, s.Err)
		}
	}
	// Go's own descriptors for its poller come with the first socket.
	if now := leaktest.Descriptors(t); now > before+2 {
		t.Errorf("%d descriptors at the end, %d at the start", now, before)
	}
}

func TestRefused(t *testing.T) {
	for word, change := range map[string]func(*Tool){
		"0 bytes":              func(t *Tool) { t.Size = 0 },
		"-1 bytes":             func(t *Tool) { t.Size = -1 },
		"8388609 bytes":        func(t *Tool) { t.Size = perf.LargestSize + 1 },
		"0s for a completion":  func(t *Tool) { t.PollTimeout = 0 },
		"1h0m0s for a complet": func(t *Tool) { t.PollTimeout = time.Hour },
	} {
		ask := tool(100)
		change(ask)
		if err := ask.Check(fabric.Caps{}); !perf.IsInput(err) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
