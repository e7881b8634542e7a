package slotmodel

import (
	"errors"
	"flag"
	"strconv"
	"strings"
	"testing"
)

// Larger bounds, for one search of one's own.
var (
	scripts = flag.String("scripts", "", "the runs that the clients send, such as 12/2; of 1 to 3 slots")
	ring    = flag.Int("slots", ringSlots, "with -scripts: slots of the ring, 1 to 3")
	kills   = flag.Int("kills", 1, "with -scripts: processes that end, 0 to 3")
	losses  = flag.Int("losses", 1, "with -scripts: connections that are lost, 0 to 3")
	repeats = flag.Int("repeats", 0, "with -scripts: writes that the fabric repeats, 0 to 3")
	spills  = flag.Int("spills", 0, "with -scripts: answers that are spilled, 0 to 3")
	states  = flag.Int("states", 20_000_000, "with -scripts: states to give up at; each takes about 150 bytes")
)

// searches are the bounds that are searched each time. least is a number of states
// that each must have, so that no change makes the model trivial unnoticed.
var searches = []struct {
	name  string
	model model
	least int
}{
	{"runs", model{slots: 3, scripts: [clients][]int{{2}, {1}}, kills: 1, losses: 1}, 500_000},
	{"kills", model{slots: 2, scripts: [clients][]int{{1}, {1}}, kills: 2}, 250_000},
	{"all at once", model{slots: 2, scripts: [clients][]int{{1}, {1}}, kills: 1, losses: 1, repeats: 1}, 900_000},
	{"reuse", model{slots: 2, scripts: [clients][]int{{1, 1}, {1}}, losses: 1, repeats: 1}, 300_000},
	{"spills", model{slots: 2, scripts: [clients][]int{{1}, {1}}, kills: 1, spills: 2}, 50_000},
	{"losses", model{slots: 3, scripts: [clients][]int{{2}, {1}}, losses: 2, repeats: 1}, 150_000},
}

// No state that the protocol can get into breaks an invariant, and from each it can
// come to rest without the help of chance.
func TestModel(t *testing.T) {
	if *scripts != "" {
		m := fromFlags(t)
		found(t, m, 1)
		return
	}
	if raceEnabled {
		t.Skip("a search is one goroutine: the race detector can only make it ten times as long")
	}
	for _, s := range searches {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			m := s.model
			m.maxStates = 2 * s.least
			found(t, &m, s.least)
		})
	}
}

// found fails the test unless a search finds nothing wrong in at least so many states.
func found(t *testing.T, m *model, least int) {
	t.Helper()
	r, err := m.search()
	t.Logf("%d slots, runs %v, kills %d, losses %d, repeats %d, spills %d: %d states, %d steps", m.slots, m.scripts, m.kills, m.losses, m.repeats, m.spills, r.states, r.steps)
	if err != nil || r.bad != "" {
		t.Errorf("%v; %v", err, &r)
	}
	if r.states < least {
		t.Errorf("%d states, want at least %d: the model does less than it did", r.states, least)
	}
}

func fromFlags(t *testing.T) *model {
	m := &model{slots: uint8(*ring), kills: uint8(*kills), losses: uint8(*losses), repeats: uint8(*repeats), spills: uint8(*spills), maxStates: *states}
	for x, script := range strings.SplitN(*scripts, "/", clients) {
		for _, digit := range script {
			run, err := strconv.Atoi(string(digit))
			if err != nil || run < 1 || run > *ring {
				t.Fatalf("-scripts %s: a run of %q", *scripts, digit)
			}
			m.scripts[x] = append(m.scripts[x], run)
		}
	}
	if n := len(m.scripts[0]) + len(m.scripts[1]); n > maxMessages || max(len(m.scripts[0]), len(m.scripts[1])) > 3 {
		t.Fatalf("-scripts %s: at most %d messages, 3 of a client", *scripts, maxMessages)
	}
	if *ring < 1 || *ring > ringSlots || max(*kills, *losses, *repeats, *spills) > 3 || min(*kills, *losses, *repeats, *spills) < 0 {
		t.Fatal("a bound is out of range")
	}
	return m
}

// The searches take steps of each kind, so that no kind gets lost unnoticed.
func TestEveryKindOfStep(t *testing.T) {
	m := &model{slots: 3, scripts: [clients][]int{{2}, {1}}, kills: 1, losses: 1, repeats: 1, spills: 1, maxStates: 30_000}
	r, err := m.search()
	if !errors.Is(err, errBound) {
		t.Fatalf("%v; %v", err, &r)
	}
	for what, n := range r.kinds {
		t.Logf("%7d %s", n, what)
	}
	if want := 36; len(r.kinds) < want {
		t.Errorf("%d kinds of steps, want at least %d", len(r.kinds), want)
	}
}

// What packs unpacks as it was.
func TestPack(t *testing.T) {
	m := model{slots: 3, scripts: [clients][]int{{2}, {1}}, kills: 1, losses: 1}
	s := m.first()
	for range 20 {
		all := m.expand(&s)
		n := all[len(all)/2]
		k := n.pack()
		if got := k.unpack(); got != n.state {
			t.Fatalf("%+v\nunpacks as\n%+v", n.state, got)
		}
		s = n.state
	}
}

// States that differ in nothing but how large their tickets are are the same; those
// with another order of tickets are not.
func TestNormalise(t *testing.T) {
	with := func(word, journal, record uint8) packed {
		var s state
		s.words[0].state, s.words[0].ticket = taken, word
		s.journal[0].taken, s.journal[0].ticket = 1, journal
		s.records[0].seen, s.records[0].ticket = 1, record
		s.normalise()
		return s.pack()
	}
	if with(7, 7, 2) != with(4, 4, 3) {
		t.Error("the size of a ticket makes a difference")
	}
	for _, other := range []packed{with(3, 3, 3), with(3, 2, 1), with(2, 2, 3)} {
		if with(4, 4, 3) == other {
			t.Error("the order of tickets makes no difference")
		}
	}
}
