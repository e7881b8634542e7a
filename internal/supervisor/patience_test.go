package supervisor

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/handoff"
)

func TestPatience(t *testing.T) {
	p := &patience{every: time.Second, most: 4, starts: 8, last: time.Now(), beats: 7}
	now, beats := p.last, p.beats
	tick := func(after time.Duration) bool {
		t.Helper()
		now = now.Add(after)
		over, alive := p.count(now, beats, true)
		if alive {
			t.Fatal("alive without a beat")
		}
		return over
	}
	quiet := func() {
		t.Helper()
		for i := range p.most {
			if tick(time.Second) {
				t.Fatalf("over after %d ticks of %d", i+1, p.most)
			}
		}
	}
	// It takes longer to start than it may be silent afterwards.
	starts := func() (over, alive bool) {
		now = now.Add(time.Second)
		return p.count(now, beats, false)
	}
	for range p.starts {
		if over, alive := starts(); over || !alive {
			t.Fatalf("before the core is ready: over %v, all is well %v", over, alive)
		}
	}
	quiet()
	beats++
	if over, alive := p.count(now.Add(time.Second), beats, true); over || !alive {
		t.Errorf("after a beat: %v, %v", over, alive)
	}
	now = now.Add(time.Second)
	quiet()
	if tick(2 * time.Second) {
		t.Error("over after a time in which the supervisor did not run")
	}
	quiet()
	if !tick(time.Second) {
		t.Error("not over after more than the limit")
	}
	for range p.starts {
		if over, alive := starts(); over || !alive {
			t.Fatalf("while another core starts: over %v, all is well %v", over, alive)
		}
	}
	if over, alive := starts(); !over || alive {
		t.Errorf("when it should be ready: over %v, all is well %v", over, alive)
	}
	p.most = 0
	if over, alive := starts(); over || alive {
		t.Errorf("without a limit, when it should be ready: over %v, all is well %v", over, alive)
	}
	if tick(time.Second) {
		t.Error("over without a limit")
	}
}

func TestBeatEvery(t *testing.T) {
	for _, c := range []struct {
		watchdog, limit, every time.Duration
		most                   int
	}{{0, 0, 0, 0}, {8, 0, 2, 0}, {0, 8, 2, 4}, {12, 8, 2, 4}, {8, 20, 2, 10}} {
		s := &supervisor{watchdog: c.watchdog * time.Second, cfg: &config.Config{Node: config.Node{HangLimit: c.limit * time.Second}}}
		if got := s.beatEvery(); got != c.every*time.Second {
			t.Errorf("%+v: every %v", c, got)
		}
		if c.every > 0 {
			var err error
			if s.pulse, err = handoff.NewPulse(); err != nil {
				t.Fatal(err)
			}
		}
		p, stop := s.newPatience()
		stop()
		s.pulse.Close()
		if p.every != c.every*time.Second || p.most != c.most || (p.ticks == nil) != (c.every == 0) {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}
