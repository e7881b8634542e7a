package groupsend_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/groupsend"
)

// Whatever happens: nothing waits for longer than the delay, nor for so long that less
// than the delay would be left until its deadline, a full group does not wait, and who
// is told to look again is told a time in the future.
func TestDelayIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]time.Duration{0, 1, 50 * time.Microsecond, 100 * time.Millisecond}).Draw(t, "limit")
		most := rapid.SampledFrom([]int{1, 2, 8, 255}).Draw(t, "max")
		d := groupsend.NewRequestDelay(limit, most)
		if rapid.Bool().Draw(t, "answers") {
			d = groupsend.NewAnswerDelay(limit, most)
		}
		if d.On() != (limit > 0 && most > 1) {
			t.Fatalf("on: %v", d.On())
		}
		now := rapid.Int64Range(1, 1<<50).Draw(t, "start")
		var w groupsend.Waiting
		var oldest, look int64
		var late bool
		step := max(1, int64(limit)/4)
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				now += rapid.Int64Range(0, 8*step).Draw(t, "by")
				if look != 0 {
					now = min(now, look) // somebody looks then
				}
			},
			"idle": func(*rapid.T) {
				if w.Messages == 0 {
					now += int64(time.Minute)
				}
			},
			"message": func(t *rapid.T) {
				w.Messages++
				w.Bytes += rapid.SampledFrom([]int{64, 100 << 10}).Draw(t, "bytes")
				if at := now + rapid.Int64Range(-step, 16*step+int64(2*time.Millisecond)).Draw(t, "deadline"); rapid.Bool().Draw(t, "has one") && (w.Deadline == 0 || at < w.Deadline) {
					w.Deadline = at
				}
				if oldest == 0 {
					oldest = now
				}
			},
			"open": func(t *rapid.T) { w.Open = rapid.IntRange(0, 300).Draw(t, "open") },
			"late": func(*rapid.T) { d.Late(); late = true },
			"": func(t *rapid.T) {
				look = d.Until(now, w)
				switch full := w.Messages >= most || w.Bytes >= groupsend.MaxGroupBytes; {
				case w.Messages == 0:
					if look != 0 {
						t.Fatal("nothing is held back")
					}
					late = false
				case look == 0:
					more := rapid.IntRange(0, 9).Draw(t, "more") == 0
					if d.Sent(more); !more {
						w, oldest, late = groupsend.Waiting{Open: w.Open + w.Messages}, 0, false
					} else {
						late = true
					}
				case full || limit == 0 || late:
					t.Fatalf("held back: %+v", w)
				case look <= now || look > oldest+int64(limit):
					t.Fatalf("look at %d, now %d, the oldest came at %d", look, now, oldest)
				case w.Deadline != 0 && look > w.Deadline-int64(limit):
					t.Fatalf("look at %d for a deadline at %d", look, w.Deadline)
				}
			},
		})
	})
}

// However far back a deadline lies, nothing is held for it.
func TestDelayWithAnyDeadline(t *testing.T) {
	for _, deadline := range []int64{math.MinInt64, -1, 1} {
		d := groupsend.NewRequestDelay(time.Millisecond, 16)
		d.Until(int64(time.Second), groupsend.Waiting{Messages: 1, Open: 5})
		if until := d.Until(int64(time.Second), groupsend.Waiting{Messages: 2, Open: 5, Deadline: deadline}); until != 0 {
			t.Errorf("with the deadline %d messages are held until %d", deadline, until)
		}
	}
}

const (
	us    = int64(time.Microsecond)
	delay = 200 * us
)

// callers simulates clients with one request outstanding each, which come back a while
// after their answer, on a lane that carries a group there and back in a fixed time and
// knows of requests only what the daemon knows. It returns the sizes of the groups, and
// for how long requests were held back at most, from a number of groups on.
func callers(d *groupsend.Delay, think []int64, groups, from int) (sizes []int, held int64) {
	const there = 100 * us
	type answer struct {
		at int64
		n  []int
	}
	next := append([]int64(nil), think...) // when each publishes; 0: waits for its answer
	var ready []int
	var since, look, now int64
	var answers []answer
	open := 0
	for len(sizes) < groups {
		// The next thing that happens.
		event := int64(1 << 62)
		for _, at := range next {
			if at != 0 {
				event = min(event, at)
			}
		}
		if len(answers) > 0 {
			event = min(event, answers[0].at)
		}
		if look != 0 {
			event = min(event, look)
		}
		now = event
		if len(answers) > 0 && answers[0].at == now {
			for _, k := range answers[0].n {
				next[k] = now + think[k]
			}
			open -= len(answers[0].n)
			answers = answers[1:]
		}
		for k, at := range next {
			if at == now {
				if len(ready) == 0 {
					since = now
				}
				ready, next[k] = append(ready, k), 0
			}
		}
		look = d.Until(now, groupsend.Waiting{Messages: len(ready), Bytes: 64 * len(ready), Open: open})
		if look == 0 && len(ready) > 0 {
			if len(sizes) >= from {
				held = max(held, now-since)
			}
			sizes = append(sizes, len(ready))
			open += len(ready)
			answers = append(answers, answer{now + there, ready})
			ready = nil
			d.Sent(false)
		}
	}
	return sizes, held
}

// A caller that is alone never waits.
func TestDelayOfOneCaller(t *testing.T) {
	for _, pause := range []int64{1, 10 * us, delay, 1000 * delay} {
		d := groupsend.NewRequestDelay(time.Duration(delay), 255)
		if _, held := callers(&d, []int64{pause}, 100, 0); held != 0 {
			t.Errorf("a caller that pauses for %d us was held back for %d us", pause/us, held/us)
		}
	}
}

// Callers that come back within the delay go together, and are not held back for
// longer than the last of them takes.
func TestDelayOfSeveralCallers(t *testing.T) {
	think := []int64{5 * us, 9 * us, 14 * us, 20 * us, 27 * us, 35 * us, 44 * us, 54 * us}
	d := groupsend.NewRequestDelay(time.Duration(delay), 255)
	sizes, held := callers(&d, think, 40, 10)
	for _, n := range sizes[10:] {
		if n != len(think) {
			t.Fatalf("groups of %v", sizes)
		}
	}
	if held != 49*us {
		t.Errorf("held back for %d us", held/us)
	}
	d = groupsend.Delay{}
	if sizes, held := callers(&d, think, 40, 10); held != 0 || fmt.Sprint(sizes[:3]) != "[1 1 1]" {
		t.Errorf("without a delay: %v, %d", sizes, held)
	}
}

// Of a caller that takes longer than the delay the others learn after one delay.
func TestDelayForgetsWhoIsSlow(t *testing.T) {
	think := []int64{5 * us, 9 * us, 14 * us, 20 * us, 100_000 * us}
	d := groupsend.NewRequestDelay(time.Duration(delay), 255)
	sizes, held := callers(&d, think, 200, 20)
	four := 0
	for _, n := range sizes[20:] {
		if n >= 4 {
			four++
		}
	}
	if four < 170 || held > delay {
		t.Errorf("%d groups of 4, held back for %d us: %v", four, held/us, sizes)
	}
}

// Answers wait for handlers that work, but not for one that was waited for in vain.
func TestDelayOfAnswers(t *testing.T) {
	d := groupsend.NewAnswerDelay(time.Duration(delay), 255)
	look := func(now int64, messages, open int, want int64) {
		t.Helper()
		if got := d.Until(now, groupsend.Waiting{Messages: messages, Open: open}); got != want {
			t.Errorf("at %d: %d, want %d", now, got, want)
		}
		if want == 0 {
			d.Sent(false)
		}
	}
	look(1000, 1, 0, 0) // the only one
	look(2000, 1, 2, 2000+delay)
	look(3000, 2, 1, 2000+delay)
	look(4000, 3, 0, 0) // the last of three
	// A handler that takes for ever costs one delay.
	look(10_000, 1, 1, 10_000+delay)
	look(10_000+delay, 1, 1, 0)
	look(20_000+delay, 1, 1, 0)
	look(30_000+delay, 1, 2, 30_000+2*delay) // another one that works
	look(40_000+delay, 2, 1, 0)
	look(50_000+delay, 1, 0, 0) // it has ended
	look(60_000+delay, 1, 1, 60_000+2*delay)
	d.Late()
	look(61_000+delay, 1, 1, 0)
}

func TestDelayDoesNotAllocate(t *testing.T) {
	d := groupsend.NewRequestDelay(time.Millisecond, 255)
	now := int64(1)
	if n := testing.AllocsPerRun(1000, func() {
		now += 1000
		if d.Until(now, groupsend.Waiting{Messages: 1, Open: 3}) == 0 {
			d.Sent(false)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
