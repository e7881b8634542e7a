package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// newTestLog makes a log whose clock stands still until the returned function moves it.
func newTestLog(o Options) (l *Log, out *bytes.Buffer, pass func(time.Duration)) {
	out = new(bytes.Buffer)
	l = New(out, o)
	now := time.Unix(1000, 0)
	l.now = func() time.Time { return now }
	return l, out, func(d time.Duration) { now = now.Add(d) }
}

// Every code has a meaning, a cause and an action, a level, and a name that stays.
func TestTable(t *testing.T) {
	all := All()
	if len(all) != len(byCode) || len(all) < 40 {
		t.Fatalf("%d codes", len(all))
	}
	for _, i := range all {
		if i.Meaning == "" || i.Cause == "" || i.Action == "" || i.Shown == "" {
			t.Errorf("%s is not complete: %+v", i.Code, i)
		}
		if i.Level != zerolog.WarnLevel && i.Level != zerolog.ErrorLevel {
			t.Errorf("%s has level %v", i.Code, i.Level)
		}
		if strings.Trim(string(i.Code), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(i.Code) > 24 {
			t.Errorf("code %q", i.Code)
		}
	}
	n := 0
	for _, part := range [][]Info{processEvents, workerEvents, peerEvents, laneEvents, hostEvents, observeEvents} {
		n += len(part)
	}
	if n != len(all) {
		t.Errorf("%d entries for %d codes", n, len(all))
	}
}

// Lines have the code and the level of the table, and errors are told apart by code and
// subject.
func TestDistinct(t *testing.T) {
	l, out, pass := newTestLog(Options{Process: "core"})
	log := l.Logger()
	for range 3 {
		PeerUnreachable.On(&log).Err(errors.New("refused")).Str("peer", "b").Msg("cannot connect")
		pass(time.Second)
	}
	PeerUnreachable.On(&log).Err(errors.New("timeout")).Str("peer", "c").Msg("cannot connect")
	log.Info().Str("peer", "b").Msg("not an error")
	var line map[string]any
	if err := json.Unmarshal(bytes.SplitN(out.Bytes(), []byte("\n"), 2)[0], &line); err != nil {
		t.Fatal(err)
	}
	if line["code"] != "peer-unreachable" || line["level"] != "warn" {
		t.Errorf("the line is %v", line)
	}
	got := l.Errors()
	if len(got) != 2 || got[0].Subject != "peer c" || got[1].Subject != "peer b" {
		t.Fatalf("errors: %+v", got)
	}
	b := got[1]
	if b.Count != 3 || b.Last.Sub(b.First) != 2*time.Second || b.Text != "cannot connect: refused" || b.Level != "warn" || b.Process != "core" {
		t.Errorf("entry: %+v", b)
	}
	select {
	case <-l.Changed():
	default:
		t.Error("nobody was told of a change")
	}
}

// What is below the level is counted all the same, and the level changes for loggers in
// use.
func TestLevel(t *testing.T) {
	l, out, _ := newTestLog(Options{Level: zerolog.ErrorLevel})
	log := l.Logger().With().Str("node", "a").Logger()
	WorkerRefused.On(&log).Msg("refused")
	log.Info().Msg("hello")
	if out.Len() != 0 || len(l.Errors()) != 1 {
		t.Errorf("written: %s, errors: %+v", out, l.Errors())
	}
	l.SetLevel(zerolog.InfoLevel)
	log.Info().Msg("hello")
	log.Debug().Msg("nothing")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "hello") {
		t.Errorf("written: %s", got)
	}
}

// Of one code only so many lines are written, those of others are not touched, all are
// counted, and the next line says how many there were.
func TestLimit(t *testing.T) {
	l, out, pass := newTestLog(Options{})
	log := l.Logger()
	for range 10 * burst {
		WorkerRefused.On(&log).Err(errors.New("no")).Msg("refused}")
	}
	CoreDied.On(&log).Msg("died")
	if n := strings.Count(out.String(), "refused}"); n != burst {
		t.Errorf("%d lines, want %d", n, burst)
	}
	if !strings.Contains(out.String(), "died") {
		t.Error("another code was suppressed")
	}
	if e := l.Errors(); len(e) != 2 || e[0].Count+e[1].Count != 10*burst+1 {
		t.Errorf("errors: %+v", e)
	}
	out.Reset()
	pass(3 * interval)
	for range 10 {
		WorkerRefused.On(&log).Dict("more", zerolog.Dict().Int("x", 1)).Msg("refused")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("after a while: %q", lines)
	}
	var first struct{ Suppressed int }
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first.Suppressed != 9*burst {
		t.Errorf("%s: %v", lines[0], err)
	}
	if strings.Contains(lines[1], "suppressed") {
		t.Errorf("said again: %s", lines[1])
	}
}

// The ring is bounded, also if somebody chooses the subjects, and takes back what an
// earlier process had.
func TestRingBounds(t *testing.T) {
	var r Ring
	at := time.Unix(1, 0)
	for n := range 1000 {
		r.Note(Entry{Code: WorkerRefused, Subject: fmt.Sprintf("worker %d\x1b[2J%s", n, strings.Repeat("x", 200)), First: at, Last: at, Text: strings.Repeat("é", 1000)})
	}
	list := r.List()
	if len(list) != maxSubjects+1 {
		t.Errorf("%d entries of one code", len(list))
	}
	for _, e := range list {
		if len(e.Subject) > maxSubject || len(e.Text) > maxText || strings.Contains(e.Subject, "\x1b") {
			t.Errorf("entry %+v", e)
		}
	}
	for n := range 1000 {
		r.Note(Entry{Code: Code(fmt.Sprint("code", n)), First: at.Add(time.Duration(n)), Last: at.Add(time.Duration(n))})
	}
	if list = r.List(); len(list) != maxEntries || list[0].Code != "code999" {
		t.Errorf("%d entries, the first is %+v", len(list), list[0])
	}
	again := New(new(bytes.Buffer), Options{})
	again.Restore(list)
	again.Restore(list[:1])
	if got := again.Errors(); len(got) != maxEntries || got[0].Count != 2 {
		t.Errorf("restored: %d, the first %+v", len(got), got[0])
	}
}

// A nil log and a console work, too.
func TestOtherLogs(t *testing.T) {
	var none *Log
	log := none.Logger()
	CoreDied.On(&log).Msg("x")
	none.SetLevel(zerolog.DebugLevel)
	none.Restore(nil)
	if none.Errors() != nil || none.Changed() != nil {
		t.Error("a nil log has errors")
	}
	l, out, _ := newTestLog(Options{Console: true})
	log = l.Logger()
	CoreDied.On(&log).Err(errors.New("signal: killed")).Msg("the core died")
	if got := out.String(); !strings.Contains(got, "the core died") || !strings.Contains(got, "code=core-died") || strings.Contains(got, "{") {
		t.Errorf("console: %s", got)
	}
}
