package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/bench/peers/internal/system"
	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fake is a session that echoes. It breaks the answer with the number damage, from 1 on.
type fake struct {
	mu              sync.Mutex
	queue           [][]byte
	most, n, damage int
	fails           error
}

func (f *fake) Close() error { return nil }

func (f *fake) echo(req []byte) []byte {
	answer := bytes.Clone(req)
	if f.n++; f.n == f.damage {
		answer[len(answer)/2] ^= 1
	}
	return answer
}

// pipe, caller and poster are what a session can be.
type (
	pipe   struct{ *fake }
	caller struct{ *fake }
	poster struct{ *fake }
)

func (p pipe) Send(req []byte) error {
	p.queue = append(p.queue, p.echo(req))
	p.most = max(p.most, len(p.queue))
	return p.fails
}

func (p pipe) Receive() ([]byte, bool, error) {
	if len(p.queue) == 0 {
		return nil, false, errors.New("nothing is outstanding")
	}
	answer := p.queue[0]
	p.queue = p.queue[1:]
	return answer, len(p.queue)%3 == 0, nil
}

func (c caller) Call(req, room []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(room[:0], c.echo(req)...), c.fails
}

func (p poster) Post(msg []byte) error {
	p.n++
	return p.fails
}

func (p poster) Flush() error { return nil }

func TestLoops(t *testing.T) {
	for _, c := range []struct {
		name  string
		op    system.Op
		depth int
		make  func(*fake) system.Session
	}{
		{"pipe", system.Echo, 7, func(f *fake) system.Session { return pipe{f} }},
		{"pipe of one", system.Echo, 1, func(f *fake) system.Session { return pipe{f} }},
		{"caller", system.Echo, 7, func(f *fake) system.Session { return caller{f} }},
		{"caller of one", system.Echo, 1, func(f *fake) system.Session { return caller{f} }},
		{"poster", system.Post, 1, func(f *fake) system.Session { return poster{f} }},
	} {
		for _, damage := range []int{0, 3} {
			var f *fake
			var l *load
			// On a busy machine it may not get to run for a while.
			const enough, most = 10, time.Minute
			for d := 5 * time.Millisecond; ; d *= 2 {
				f, l = &fake{damage: damage}, newLoad(&Job{Op: c.op, Size: 64, Depth: c.depth, Seed: 1})
				if err := l.run(c.make(f), d); err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				if f.n >= enough || d > most {
					break
				}
			}
			if l.finished != uint64(f.n) || l.finished < enough || len(f.queue) != 0 {
				t.Errorf("%s: %d finished, %d sent, %d outstanding", c.name, l.finished, f.n, len(f.queue))
			}
			if want := uint64(min(damage, 1)); c.op == system.Echo && l.mismatches != want {
				t.Errorf("%s: %d answers were wrong, want %d", c.name, l.mismatches, want)
			}
			if want := int64(l.finished); c.op == system.Echo && l.latency.Histogram().TotalCount() != want {
				t.Errorf("%s: %d latencies, want %d", c.name, l.latency.Histogram().TotalCount(), want)
			}
			if f.most > c.depth || f.most > 0 && f.most < c.depth {
				t.Errorf("%s: %d outstanding, want %d", c.name, f.most, c.depth)
			}
			// A second run forgets the first.
			again := &fake{}
			if err := l.run(c.make(again), 0); err != nil || l.finished != uint64(again.n) || l.mismatches != 0 {
				t.Errorf("%s, again: %d finished, %d wrong, %v", c.name, l.finished, l.mismatches, err)
			}
		}
		broken := errors.New("broken")
		if err := newLoad(&Job{Op: c.op, Size: 64, Depth: c.depth}).run(c.make(&fake{fails: broken}), time.Second); !errors.Is(err, broken) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := newLoad(&Job{System: "x", Op: system.Post, Depth: 1}).run(&fake{}, 0); err == nil {
		t.Error("a session that can do nothing has done something")
	}
}

// bulk is a session whose answers are there at once, and take long to check.
type bulk struct {
	answers [][]byte
	sent    int
	taken   int
}

func (b *bulk) Close() error { return nil }

func (b *bulk) Send(req []byte) error {
	content.Restamp(b.answers[b.sent%len(b.answers)], binary.LittleEndian.Uint64(req))
	b.sent++
	return nil
}

func (b *bulk) Receive() ([]byte, bool, error) {
	b.taken++
	return b.answers[(b.taken-1)%len(b.answers)], false, nil
}

// The check of an answer is no part of the next call, however many are outstanding: with two, a call waits for the check of one
// other answer.
func TestLatencyWithoutCheck(t *testing.T) {
	for depth, most := range map[int]float64{1: 0.5, 2: 1.5, 4: 3.5} {
		const size = 4 << 20
		b := new(bulk)
		for range depth {
			p := make([]byte, size)
			content.Fill(p, 0)
			b.answers = append(b.answers, p)
		}
		l := newLoad(&Job{Op: system.Echo, Size: size, Depth: depth})
		begun := time.Now()
		// Many, also where others have the processor: those at the ends have other latencies.
		for d := 100 * time.Millisecond; l.finished < 50; d *= 2 {
			begun = time.Now()
			if err := l.run(b, d); err != nil || l.mismatches > 0 {
				t.Fatalf("%v, %d answers were wrong", err, l.mismatches)
			}
		}
		each := float64(time.Since(begun)) / float64(l.finished)
		if latency := l.latency.Histogram().Mean(); latency > most*each {
			t.Errorf("%d outstanding: a latency of %v, and one call after the other takes %v", depth, time.Duration(latency), time.Duration(each))
		}
	}
}

// A client process that cannot work says why.
func TestClientReportsErrors(t *testing.T) {
	missing := t.TempDir() + "/none"
	for _, c := range []struct{ in, want string }{
		{"{\n", "read a job"},
		{`{"system":"none"}` + "\n", `no system "none"`},
		{`{"system":"unix","address":"` + missing + `","depth":1}` + "\n", missing},
		{`{"system":"rdmad","address":"` + missing + ` b/","depth":1}` + "\n", "not running"},
	} {
		var out bytes.Buffer
		if err := Client(t.Context(), strings.NewReader(c.in), &out); err == nil {
			t.Errorf("%q: no error", c.in)
		}
		var r Report
		if err := json.Unmarshal(out.Bytes(), &r); c.want != "read a job" && (err != nil || !strings.Contains(r.Error, c.want)) {
			t.Errorf("%q: reported %q, want %q", c.in, out.String(), c.want)
		}
	}
	if err := Client(t.Context(), strings.NewReader(""), io.Discard); err != nil {
		t.Errorf("without a job: %v", err)
	}
}

// What is watched ends with its context, although it goes on.
func TestWatched(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	release := make(chan struct{})
	defer close(release)
	err := watched(ctx, newLoad(&Job{Depth: 1}), func() error {
		<-release
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
