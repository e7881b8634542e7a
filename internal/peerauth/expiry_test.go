package peerauth

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/nodecert"
)

// said is a log in which events are counted.
type said struct {
	mu  sync.Mutex
	log bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *said) count(code event.Code) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.log.String(), `"`+string(code)+`"`)
}

// become waits until it was said so often that a certificate expires.
func (s *said) become(t *testing.T, expires int, meanwhile func()) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); s.count(event.TLSExpires) != expires; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("said %d times, want %d", s.count(event.TLSExpires), expires)
		}
		meanwhile()
	}
}

// certificates makes one of node a in dir that is valid for a time.
func certificates(t *testing.T, dir string, valid time.Duration) nodecert.Files {
	t.Helper()
	m, err := nodecert.Make(nodecert.Plan{Dir: dir, Nodes: []string{"a"}, CAValid: 1000 * 24 * time.Hour, NodeValid: valid, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	return m.Nodes[0].Files
}

// watched is a guard whose first certificate is valid for a time, and which is watched until the test ends.
func watched(t *testing.T, dir string, valid time.Duration) (*Guard, *said) {
	t.Helper()
	log, files := new(said), certificates(t, dir, valid)
	cfg := &config.Config{Node: config.Node{Name: "a"}, TLS: config.TLS{Mode: config.TLSRequired, Cert: files.Cert, Key: files.Key, CA: files.CA}}
	g, err := NewGuard(cfg, false, zerolog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	if early := log.count(event.TLSExpires); early != 0 && time.Until(g.Certificate().NotAfter) > soon {
		t.Error("said before it is true")
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); g.Watch(ctx) }()
	t.Cleanup(func() { stop(); <-over })
	return g, log
}

// That a certificate expires soon is said when that becomes true, however long the node runs.
func TestWatch(t *testing.T) {
	_, log := watched(t, t.TempDir(), soon+2*time.Second)
	log.become(t, 1, func() {})
	new(Guard).Watch(t.Context()) // nothing to watch
}

// So it is of another certificate that is taken into use.
func TestWatchOfOthers(t *testing.T) {
	dir := t.TempDir()
	g, log := watched(t, dir, 2*soon)
	certificates(t, dir, time.Hour)
	log.become(t, 1, func() { g.Certificate() }) // as for every connection
}

// Each is said once for as long as it is true.
func TestJudgeSaysOnce(t *testing.T) {
	log := new(said)
	load := func(valid time.Duration) *nodecert.Material {
		m, err := nodecert.Load(nodecert.Open, certificates(t, t.TempDir(), valid))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	j := newJudge("a", zerolog.New(log))
	if again := j.look(new(nodecert.Material), time.Now()); again != judgeEvery {
		t.Errorf("without a certificate: again in %v", again)
	}
	long, short := load(60*24*time.Hour), load(24*time.Hour)
	now := long.Leaf.NotAfter.Add(-60 * 24 * time.Hour) // however long making them takes
	for i, step := range []struct {
		m                *nodecert.Material
		days             int
		expires, refused int
	}{
		{long, 0, 0, 0}, {long, 29, 0, 0}, {long, 31, 1, 0}, {long, 59, 1, 0},
		{long, 61, 1, 1}, {long, 62, 1, 1},
		{short, 0, 1, 1}, // the same is true of this one
		{long, 0, 1, 1}, {short, 0, 2, 1}, {short, 2, 2, 2}, {long, 0, 2, 2}, {long, 61, 2, 3}, {long, 40, 3, 3},
	} {
		again := j.look(step.m, now.Add(time.Duration(step.days)*24*time.Hour))
		if log.count(event.TLSExpires) != step.expires || log.count(event.TLSOwnCertificate) != step.refused {
			t.Errorf("step %d: %d and %d events, want %d and %d", i, log.count(event.TLSExpires), log.count(event.TLSOwnCertificate), step.expires, step.refused)
		}
		if again <= 0 || again > judgeEvery {
			t.Errorf("step %d: again in %v", i, again)
		}
	}
	if again := j.look(long, now.Add(30*24*time.Hour-time.Hour)); again != time.Hour+time.Millisecond {
		t.Errorf("an hour before it becomes true: again in %v", again)
	}
}
