package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"os"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/observe"
	"github.com/rdmad/rdmad/internal/webpage"
)

// watched is the daemon as package observe sees it.
type watched struct{ *conductor }

// show serves HTTP on the listeners that are there, until the core stops.
func (c *conductor) show(list [handoff.Observers]net.Listener) {
	if list == [handoff.Observers]net.Listener{} {
		return
	}
	var s *observe.Server
	page := webpage.New(webpage.SourceFunc(func(ctx context.Context) (json.RawMessage, error) { return s.Status(ctx) }), webpage.Options{Viewing: observe.Keep})
	s = observe.New(observe.Options{Source: watched{c}, Page: page, Hosts: c.hosts, Log: c.log, Peers: c.cfg.Observe.ReadyPeers})
	c.closers = append(c.closers, func() error {
		page.Close()
		return s.Close()
	})
	for i, l := range list {
		if l == nil {
			continue
		}
		if i == handoff.ObserveTCP {
			c.warnOfOpenHTTP(l.Addr())
		}
		c.spawn(func() {
			if err := s.Serve(l, i == handoff.ObserveUnix || c.cfg.Observe.Pprof); err != nil {
				event.ObserveEnded.On(&c.log).Err(err).Stringer("address", l.Addr()).Msg("HTTP is not served any more")
			}
		})
	}
}

// hosts returns the names by which requests by HTTP may name this host.
func (c *conductor) hosts() []string {
	cfg := c.live().Observe
	list := slices.Clone(cfg.Hosts)
	if name, err := os.Hostname(); err == nil {
		list = append(list, name)
	}
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil {
		list = append(list, host)
	}
	return list
}

// warnOfOpenHTTP says that others than this machine's users can read everything.
func (c *conductor) warnOfOpenHTTP(a net.Addr) {
	if t, ok := a.(*net.TCPAddr); ok && !t.IP.IsLoopback() {
		event.ObserveOpen.On(&c.log).Stringer("address", a).Msg("observe.listen: anybody who reaches this address can read the state of the node")
	}
}

// Status implements observe.Source. Package observe waits for nobody when it closes, so the core does, before it gives back what
// a status is made of.
func (w watched) Status(context.Context) (json.RawMessage, error) {
	var s *statusRound
	done := make(chan struct{})
	if !w.spawn(func() {
		defer close(done)
		s = w.status()
	}) {
		return nil, errStopping
	}
	<-done
	return s.encoded()
}

// Alive implements observe.Source.
func (w watched) Alive(context.Context) {
	for _, a := range w.agents {
		a.Commands.Call(func() {})
	}
}

// Snapshot implements observe.Source.
func (w watched) Snapshot() (*counters.Snapshot, error) { return w.counters.Snapshot() }

// Facts implements observe.Source.
func (w watched) Facts() observe.Facts {
	var f observe.Facts
	if len(w.fabrics) > 0 {
		f.Fabric, f.Detail = w.fabrics[0].Name, w.fabrics[0].Detail
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.Draining = w.drainsNow()
	for _, l := range w.links {
		f.Peers = append(f.Peers, observe.Peer{Name: l.name, Connected: l.session != nil, AgeS: time.Since(l.since).Seconds()})
	}
	slices.SortFunc(f.Peers, func(a, b observe.Peer) int { return cmp.Compare(a.Name, b.Name) })
	return f
}
