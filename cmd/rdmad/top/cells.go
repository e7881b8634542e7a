package top

import (
	"fmt"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/status"
)

func peerCells(p *Picture) (rows [][]cell) {
	for _, r := range p.Now.Peers {
		encrypted := ""
		if r.TLS != nil {
			encrypted = r.TLS.Version
		}
		rows = append(rows, []cell{text(r.Name), text(r.State), value(r.SinceS, true, table.Seconds(r.SinceS)), count(r.Services), text(r.Fabric),
			text(encrypted), text(r.Address), text(r.Error)})
	}
	return rows
}

func laneCells(p *Picture) (rows [][]cell) {
	type key struct {
		domain string
		id     uint16
	}
	before := map[key]*status.Lane{}
	if p.before != nil {
		for i, l := range p.before.Lanes {
			before[key{l.Domain, l.ID}] = &p.before.Lanes[i]
		}
	}
	for i := range p.Now.Lanes {
		l := &p.Now.Lanes[i]
		var old status.Lane
		b := before[key{l.Domain, l.ID}]
		if b != nil {
			old = *b
		}
		r, known := p.rate(l.Requests, old.Requests)
		known = known && b != nil
		// The mean size of groups is that of the interval, or of all time if it is not
		// known.
		requests, groups := l.Requests-min(l.Requests, old.Requests), l.Groups-min(l.Groups, old.Groups)
		size := float64(requests) / float64(max(groups, 1))
		var earlier *status.Times
		if b != nil {
			earlier = &b.Latency
		}
		times := timesOf(&l.Latency, earlier)
		rows = append(rows, []cell{count(l.ID), text(l.Direction), text(l.Peer), text(l.Class), text(l.State), count(l.Busy), count(l.Slots),
			rated(r, known), value(size, groups > 0, fmt.Sprintf("%.1f", size)), times.cell(times.p50), times.cell(times.p99),
			value(float64(l.Users), !p.counted, fmt.Sprint(l.Users)), bound(l.Share), text(l.Domain), count(l.Requests)})
	}
	return rows
}

func serviceCells(p *Picture) (rows [][]cell) {
	type key struct{ domain, node, service, method string }
	before := map[key]*status.Service{}
	if p.before != nil {
		for i, v := range p.before.Services {
			before[key{v.Domain, v.Node, v.Service, v.Method}] = &p.before.Services[i]
		}
	}
	for i := range p.Now.Services {
		v := &p.Now.Services[i]
		var times times
		var r float64
		known := false
		if v.Counted != nil {
			var earlier *status.Times
			if b := before[key{v.Domain, v.Node, v.Service, v.Method}]; b != nil && b.Counted != nil {
				earlier = &b.Counted.Latency
				r, known = p.rate(v.Counted.Requests, b.Counted.Requests)
			}
			times = timesOf(&v.Counted.Latency, earlier)
		}
		processes := value(float64(v.Workers), v.Node == p.Now.Node && !p.counted, fmt.Sprint(v.Workers))
		rows = append(rows, []cell{text(v.Service), text(v.Method), text(v.Node), processes, rated(r, known), times.cell(times.p50), times.cell(times.p99),
			text(v.Domain), value(float64(times.count), times.known, fmt.Sprint(times.count))})
	}
	return rows
}

func workerCells(p *Picture) (rows [][]cell) {
	for _, w := range p.Now.Workers {
		rows = append(rows, []cell{count(w.ID), text(w.Role), text(w.Name), count(w.PID), count(w.Slots), count(w.SlotBytes), count(w.OverLimit),
			count(w.SpilledAnswers), count(w.SpillUnread), count(w.Offences), text(w.Domain), count(w.UID), count(w.Regions)})
	}
	return rows
}

// troubles are the counters that are not 0 when something is wrong, or may be, with what
// they count.
var troubles = []struct{ name, what string }{
	{"maybe_executed", "requests that may have been executed"},
	{"not_executed", "requests that were not executed"},
	{"refused", "requests that this daemon answered with an error"},
	{"over_limit", "requests that were more than their process may have"},
	{"oneway_failed", "one-way messages that failed"},
	{"lane_failures", "connections of lanes that broke"},
	{"resent", "requests that were sent again"},
	{"region_link_failures", "connections for operations on regions that broke"},
	{"region_ops_failed", "operations on regions that failed"},
	{"protocol_errors", "messages that nobody correct writes"},
	{"offences", "those that were their worker's for certain"},
	{"damages", "errors in a domain's memory that are nobody's for certain"},
	{"struck_out", "workers disconnected for their offences"},
	{"rotations", "domains that got other memory"},
	{"redispatched", "requests taken back from a process that went away"},
	{"orphans", "answers for processes that are gone"},
	{"spilled_answers", "answers that their worker did not take in time"},
	{"spill_failures", "answers that could not be moved out of their slots"},
	{"slow_workers", "workers disconnected because they do not read"},
	{"refused_connections", "connections of workers and peers that were refused"},
}

func errorCells(p *Picture) (rows [][]cell) {
	for _, r := range p.Now.Peers {
		if r.Error != "" {
			rows = append(rows, []cell{text("peer " + r.Name), value(0, false, ""), value(0, false, ""), text(r.State + ": " + r.Error)})
		}
	}
	if s := p.Now.FallbackReason; s != "" {
		rows = append(rows, []cell{text("fabric"), value(0, false, ""), value(0, false, ""), text("fell back to " + p.Now.Fabric + ": " + s)})
	}
	for _, e := range p.Now.Errors {
		rows = append(rows, []cell{text(string(e.Code)), count(e.Count), value(0, false, ""), text(table.Seconds(p.At.Sub(e.Last).Seconds()) + " ago, " + e.Text)})
	}
	for _, t := range troubles {
		if n := p.Now.Counters[t.name]; n > 0 {
			r, known := p.counter(t.name)
			rows = append(rows, []cell{text(t.name), count(n), rated(r, known), text(t.what)})
		}
	}
	for _, r := range p.Now.Refusals {
		rows = append(rows, []cell{text("refused " + r.From), count(r.Count), value(0, false, ""), text(table.Seconds(r.AgeS) + " ago, " + r.Reason + ": " + r.Text)})
	}
	return rows
}
