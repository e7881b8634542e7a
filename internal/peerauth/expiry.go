package peerauth

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/nodecert"
)

const (
	// soon is how long before the end of its certificate a node says so.
	soon = 30 * 24 * time.Hour
	// judgeEvery is how often a certificate is judged at least: clocks are set, machines sleep, and of an authority's end
	// nobody is told.
	judgeEvery = 24 * time.Hour
)

// judge says of a node's certificate that it expires soon, or that peers refuse it, each when it becomes true: a node that is given
// certificates of a few days, again and again, says so once.
type judge struct {
	node string
	log  zerolog.Logger
	// expires and refused are what was true of the last one.
	expires, refused bool
	// renewed gets a value when there is another certificate.
	renewed chan struct{}
}

func newJudge(node string, log zerolog.Logger) *judge {
	return &judge{node: node, log: log, renewed: make(chan struct{}, 1)}
}

// renew notes that there is another certificate.
func (j *judge) renew() {
	select {
	case j.renewed <- struct{}{}:
	default:
	}
}

// look judges the certificate, if there is one, and returns when that is to be done again if it stays.
func (j *judge) look(m *nodecert.Material, now time.Time) (again time.Duration) {
	again = judgeEvery
	if m.Leaf == nil {
		return again
	}
	left := m.Leaf.NotAfter.Sub(now)
	err := m.Usable(j.node, now)
	expires := left < soon
	switch {
	case err != nil && !j.refused:
		event.TLSOwnCertificate.On(&j.log).Err(err).Msg("peers will refuse this node's certificate")
	case err == nil && expires && !j.expires:
		event.TLSExpires.On(&j.log).Time("not_after", m.Leaf.NotAfter).Msg("this node's certificate expires soon; make a new one: " + nodecert.Renewal(j.node))
	}
	j.refused, j.expires = err != nil, expires && (err == nil || j.expires)
	for _, until := range []time.Duration{left - soon, left} {
		if until >= 0 {
			again = min(again, until+time.Millisecond) // it is true from then on
		}
	}
	return again
}

// Watch judges the node's certificate until ctx ends: whenever another one is taken into use, and when it has come to its end, or
// will soon.
func (g *Guard) Watch(ctx context.Context) {
	if !g.Required() {
		return
	}
	for {
		next := time.NewTimer(g.judge.look(g.keeper.Material(), time.Now()))
		select {
		case <-next.C:
		case <-g.judge.renewed:
			next.Stop()
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}
