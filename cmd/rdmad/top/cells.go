package top

import (
	"fmt"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/status"
)

var peerColumns = []column[status.Peer]{
	{"PEER", func(r status.Peer) cell { return text(r.Name) }},
	{"STATE", func(r status.Peer) cell { return text(r.State) }},
	{"SINCE", func(r status.Peer) cell { return value(r.SinceS, true, table.Seconds(r.SinceS)) }},
	{"SERVICES", func(r status.Peer) cell { return count(r.Services) }},
	{"FABRIC", func(r status.Peer) cell { return text(r.Fabric) }},
	{"TLS", func(r status.Peer) cell {
		if r.TLS == nil {
			return text("")
		}
		return text(r.TLS.Version)
	}},
	{"ADDRESS", func(r status.Peer) cell { return text(r.Address) }},
	{"ERROR", func(r status.Peer) cell { return text(r.Error) }},
}

// laneRow is a lane with what it has done in the interval.
type laneRow struct {
	*status.Lane
	rate cell
	// size is the mean size of groups: of the interval, or of all time if that is not known.
	size  cell
	times times
	// counted: it is of the file of counters, which does not say who uses it.
	counted bool
}

func laneRows(p *Picture) (rows []laneRow) {
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
		var earlier *status.Times
		b := before[key{l.Domain, l.ID}]
		if b != nil {
			old, earlier = *b, &b.Latency
		}
		r, known := p.rate(l.Requests, old.Requests)
		requests, groups := l.Requests-min(l.Requests, old.Requests), l.Groups-min(l.Groups, old.Groups)
		size := float64(requests) / float64(max(groups, 1))
		rows = append(rows, laneRow{
			Lane: l, rate: rated(r, known && b != nil), size: value(size, groups > 0, fmt.Sprintf("%.1f", size)), times: timesOf(&l.Latency, earlier), counted: p.counted,
		})
	}
	return rows
}

var laneColumns = []column[laneRow]{
	{"LANE", func(r laneRow) cell { return count(r.ID) }},
	{"DIR", func(r laneRow) cell { return text(r.Direction) }},
	{"PEER", func(r laneRow) cell { return text(r.Peer) }},
	{"CLASS", func(r laneRow) cell { return text(r.Class) }},
	{"STATE", func(r laneRow) cell { return text(r.State) }},
	{"BUSY", func(r laneRow) cell { return count(r.Busy) }},
	{"SLOTS", func(r laneRow) cell { return count(r.Slots) }},
	{"REQ/S", func(r laneRow) cell { return r.rate }},
	{"REQ/GRP", func(r laneRow) cell { return r.size }},
	{"P50", func(r laneRow) cell { return r.times.cell(r.times.p50) }},
	{"P99", func(r laneRow) cell { return r.times.cell(r.times.p99) }},
	{"USERS", func(r laneRow) cell { return value(float64(r.Users), !r.counted, fmt.Sprint(r.Users)) }},
	{"SHARE", func(r laneRow) cell { return bound(r.Share) }},
	{"DOMAIN", func(r laneRow) cell { return text(r.Domain) }},
	{"REQUESTS", func(r laneRow) cell { return count(r.Requests) }},
}

// serviceRow is a method with what it has done in the interval.
type serviceRow struct {
	*status.Service
	rate  cell
	times times
	// workers says that it is known how many processes serve it.
	workers bool
}

func serviceRows(p *Picture) (rows []serviceRow) {
	type key struct{ domain, node, service, method string }
	before := map[key]*status.Service{}
	if p.before != nil {
		for i, v := range p.before.Services {
			before[key{v.Domain, v.Node, v.Service, v.Method}] = &p.before.Services[i]
		}
	}
	for i := range p.Now.Services {
		v := &p.Now.Services[i]
		row := serviceRow{Service: v, rate: rated(0, false), workers: v.Node == p.Now.Node && !p.counted}
		if v.Counted != nil {
			var earlier *status.Times
			if b := before[key{v.Domain, v.Node, v.Service, v.Method}]; b != nil && b.Counted != nil {
				earlier = &b.Counted.Latency
				row.rate = rated(p.rate(v.Counted.Requests, b.Counted.Requests))
			}
			row.times = timesOf(&v.Counted.Latency, earlier)
		}
		rows = append(rows, row)
	}
	return rows
}

var serviceColumns = []column[serviceRow]{
	{"SERVICE", func(r serviceRow) cell { return text(r.Service.Service) }},
	{"METHOD", func(r serviceRow) cell { return text(r.Method) }},
	{"NODE", func(r serviceRow) cell { return text(r.Node) }},
	{"PROCS", func(r serviceRow) cell { return value(float64(r.Workers), r.workers, fmt.Sprint(r.Workers)) }},
	{"REQ/S", func(r serviceRow) cell { return r.rate }},
	{"P50", func(r serviceRow) cell { return r.times.cell(r.times.p50) }},
	{"P99", func(r serviceRow) cell { return r.times.cell(r.times.p99) }},
	{"DOMAIN", func(r serviceRow) cell { return text(r.Domain) }},
	{"REQUESTS", func(r serviceRow) cell {
		return value(float64(r.times.count), r.times.known, fmt.Sprint(r.times.count))
	}},
}

var workerColumns = []column[status.Worker]{
	{"WORKER", func(w status.Worker) cell { return count(w.ID) }},
	{"ROLE", func(w status.Worker) cell { return text(w.Role) }},
	{"NAME", func(w status.Worker) cell { return text(w.Name) }},
	{"PID", func(w status.Worker) cell { return count(w.PID) }},
	{"SLOTS", func(w status.Worker) cell { return count(w.Slots) }},
	{"BYTES", func(w status.Worker) cell { return count(w.SlotBytes) }},
	{"REFUSED", func(w status.Worker) cell { return count(w.OverLimit) }},
	{"SPILLED", func(w status.Worker) cell { return count(w.SpilledAnswers) }},
	{"UNREAD", func(w status.Worker) cell { return count(w.SpillUnread) }},
	{"OFFENCES", func(w status.Worker) cell { return count(w.Offences) }},
	{"DOMAIN", func(w status.Worker) cell { return text(w.Domain) }},
	{"UID", func(w status.Worker) cell { return count(w.UID) }},
	{"REGIONS", func(w status.Worker) cell { return count(w.Regions) }},
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

// errorRow is something that is wrong, or may be; how often and how fast are not known of all.
type errorRow struct {
	what        string
	times, rate cell
	detail      string
}

var errorColumns = []column[errorRow]{
	{"WHAT", func(r errorRow) cell { return text(r.what) }},
	{"TIMES", func(r errorRow) cell { return r.times }},
	{"PER S", func(r errorRow) cell { return r.rate }},
	{"DETAIL", func(r errorRow) cell { return text(r.detail) }},
}

func errorRows(p *Picture) (rows []errorRow) {
	unknown := value(0, false, "")
	for _, r := range p.Now.Peers {
		if r.Error != "" {
			rows = append(rows, errorRow{"peer " + r.Name, unknown, unknown, r.State + ": " + r.Error})
		}
	}
	if s := p.Now.FallbackReason; s != "" {
		rows = append(rows, errorRow{"fabric", unknown, unknown, "fell back to " + p.Now.Fabric + ": " + s})
	}
	for _, e := range p.Now.Errors {
		rows = append(rows, errorRow{string(e.Code), count(e.Count), unknown, table.Seconds(p.At.Sub(e.Last).Seconds()) + " ago, " + e.Text})
	}
	for _, t := range troubles {
		if n := p.Now.Counters[t.name]; n > 0 {
			rows = append(rows, errorRow{t.name, count(n), rated(p.counter(t.name)), t.what})
		}
	}
	for _, r := range p.Now.Refusals {
		rows = append(rows, errorRow{"refused " + r.From, count(r.Count), unknown, table.Seconds(r.AgeS) + " ago, " + r.Reason + ": " + r.Text})
	}
	return rows
}
