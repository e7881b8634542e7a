package shm_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
)

func TestWaitModeText(t *testing.T) {
	for text, want := range map[string]shm.WaitMode{
		"event": shm.WaitEvent, "busy": shm.WaitBusy, "adaptive": shm.WaitAdaptive(shm.DefaultSpin),
		"adaptive:20us": shm.WaitAdaptive(20 * time.Microsecond), "adaptive:0s": shm.WaitEvent, "adaptive:1ms": shm.WaitAdaptive(time.Hour),
	} {
		var m, back shm.WaitMode
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want {
			t.Errorf("%q: %v, %v", text, m, err)
		}
		if err := back.UnmarshalText([]byte(m.String())); err != nil || back != m {
			t.Errorf("%q as %q: %v, %v", text, m, back, err)
		}
	}
	for _, bad := range []string{"", "lazy", "busy:1us", "event:", "adaptive:", "adaptive:2ms", "adaptive:-1us", "adaptive:x"} {
		m := shm.WaitBusy
		if err := m.UnmarshalText([]byte(bad)); err == nil || m != shm.WaitBusy {
			t.Errorf("%q: %v, %v", bad, m, err)
		}
	}
	if m := shm.WaitAdaptive(-time.Second); m != shm.WaitEvent {
		t.Errorf("a negative time: %v", m)
	}
}

// Sleeping at once does not even look.
func TestPollEvent(t *testing.T) {
	var p shm.Poll
	if p.Until(func() bool { t.Error("looked"); return true }) {
		t.Error("it says not to sleep")
	}
}

// Busy polling never says to sleep, returns at once with something to do, and after a
// while without.
func TestPollBusy(t *testing.T) {
	p := shm.Poll{Mode: shm.WaitBusy}
	looks := 0
	if !p.Until(func() bool { looks++; return looks == 3 }) || looks != 3 {
		t.Errorf("%d looks", looks)
	}
	if !p.Until(func() bool { looks++; return false }) || looks < 100 {
		t.Errorf("%d looks", looks)
	}
}

// With one processor (P) the one who polls lets the other goroutines run.
func TestPollBusyLetsGoroutinesRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := shm.Poll{Mode: shm.WaitBusy}
	var rounds atomic.Int64
	go func() {
		for rounds.Add(1) < 100 {
			runtime.Gosched()
		}
	}()
	looks := 0
	p.Until(func() bool { looks++; return rounds.Load() == 100 })
	if rounds.Load() != 100 || looks > 1000 {
		t.Errorf("%d rounds of the other goroutine in %d looks", rounds.Load(), looks)
	}
}

// Polling that is always in vain is given up but for a try now and then, and is not
// even tried if it keeps the last processor (P).
func TestPollAdaptiveGivesUp(t *testing.T) {
	p := shm.Poll{Mode: shm.WaitAdaptive(20 * time.Microsecond)}
	const waits = 5000
	polled := func() (n int) {
		for range waits {
			looked := 0
			if p.Until(func() bool { looked = 1; return false }) {
				t.Fatal("it does not say to sleep")
			}
			n += looked
		}
		return n
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	if n := polled(); n == 0 || n > waits/50 {
		t.Errorf("%d of %d waits polled", n, waits)
	}
	runtime.GOMAXPROCS(1)
	if n := polled(); n != 0 {
		t.Errorf("%d of %d waits polled on the last processor", n, waits)
	}
}

// Polling that finds something in time goes on.
func TestPollAdaptivePays(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	p := shm.Poll{Mode: shm.WaitAdaptive(shm.MaxSpin)}
	// On a busy machine others keep the processor now and then, which costs the polling of some
	// time.
	for end := time.Now().Add(time.Minute); ; {
		looked := 0
		if p.Until(func() bool { looked++; return looked == 3 }) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no wait polled with success")
		}
	}
}

// Where another thread keeps the processor for milliseconds whenever it gets it, little of the time goes
// to polling, and some does: that does not last for ever.
func TestPollAdaptiveLeavesCrowds(t *testing.T) {
	beside(t, func() {
		for end := shm.Nanotime() + int64(5*time.Millisecond); shm.Nanotime() < end; {
		}
	})
	p := shm.Poll{Mode: shm.WaitAdaptive(20 * time.Microsecond)}
	end := shm.Nanotime() + int64(time.Minute)
	// What the whole processor stood still for in a yield counts as polling: one second of several must do.
	for {
		polls, polling, total := pollFor(t, &p, time.Second, end)
		if polling <= total/4 {
			return
		}
		if shm.Nanotime() > end {
			t.Fatalf("%d waits have polled for %v of %v", polls, polling, total)
		}
	}
}

// pollFor polls in vain for so long, and until two waits have polled. It returns how many have, how much of the whole time went to them,
// and that. After end it fails.
func pollFor(t *testing.T, p *shm.Poll, long time.Duration, end int64) (polls int, polling, total time.Duration) {
	t.Helper()
	begin := shm.Nanotime()
	now := begin
	for now-begin < int64(long) || polls < 2 {
		looked := false
		before := now
		if p.Until(func() bool { looked = true; return false }) {
			t.Fatal("it does not say to sleep")
		}
		if now = shm.Nanotime(); looked {
			polls++
			polling += time.Duration(now - before)
		}
		if now > end && polls < 2 {
			t.Fatalf("%d waits have polled in %v", polls, time.Duration(now-begin))
		}
	}
	return polls, polling, time.Duration(now - begin)
}
