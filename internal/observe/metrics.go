package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmad/rdmad/internal/counters"
)

// Kind is the type of a metric.
type Kind string

// The types of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes a metric.
type Metric struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string

	desc *prometheus.Desc
}

// Metrics returns everything of rdmad's own that /metrics may have, in the order in which
// the documentation lists it.
func Metrics() []*Metric { return table }

var table []*Metric

// define adds a metric to the table.
func define(name string, kind Kind, help string, labels ...string) *Metric {
	m := &Metric{Name: name, Kind: kind, Labels: labels, Help: help, desc: prometheus.NewDesc(name, help, labels, nil)}
	table = append(table, m)
	return m
}

// The labels of lanes and of methods. Lanes that differ only by their number are added up.
var (
	laneLabels    = []string{"domain", "peer", "class", "direction"}
	serviceLabels = []string{"domain", "service", "method"}
)

func and(labels []string, more ...string) []string {
	return append(append([]string{}, labels...), more...)
}

var (
	requests = define("rdmad_requests_total", Counter, "Requests for services of this node that were answered, by how they ended.", and(serviceLabels, "outcome")...)
	duration = define("rdmad_request_duration_seconds", Histogram, "From the arrival of a request for a service of this node until its answer was ready.", serviceLabels...)
	waiting  = define("rdmad_request_wait_seconds", Histogram, "How long requests waited that no process of their service had room for when they came.", serviceLabels...)

	calls        = define("rdmad_calls_total", Counter, "Requests by lane and by how they ended; direction out and local are this node's own.", and(laneLabels, "outcome")...)
	laneRequests = define("rdmad_lane_requests_total", Counter, "Requests sent by a lane, or arrived by it.", laneLabels...)
	laneAnswers  = define("rdmad_lane_answers_total", Counter, "Answers that came back by a lane, or were sent back.", laneLabels...)
	laneBytes    = define("rdmad_lane_bytes_total", Counter, "Size of the writes of an out lane, and of the payloads that came by an in lane.", laneLabels...)
	laneFailures = define("rdmad_lane_connection_failures_total", Counter, "Times that a lane's connection broke.", laneLabels...)
	backpressure = define("rdmad_backpressure_events_total", Counter, "Times that a lane had something to send and no room on its connection.", laneLabels...)
	batchSize    = define("rdmad_batch_size", Histogram, "Requests in a group.", laneLabels...)
	stages       = define("rdmad_stage_duration_seconds", Histogram, "Times of a lane's requests: round_trip from sending to the answer, serve from arrival to the answer, other of lanes without a row, either of the two, queue of groups that could not be sent at once.", and(laneLabels, "stage")...)
	underWay     = define("rdmad_requests_in_flight", Gauge, "Requests under way in a lane.", laneLabels...)
	slotsOf      = define("rdmad_slots", Gauge, "Slots of the rings of a lane, as far as the daemon knows: busy are those of requests under way.", and(laneLabels, "state")...)

	cycles  = define("rdmad_agent_cycle_duration_seconds", Histogram, "From the beginning of an agent's cycle to that of the next, when it did not sleep in between.", "agent")
	longest = define("rdmad_agent_longest_cycle_seconds", Gauge, "The longest of these since the core started.", "agent")
	beat    = define("rdmad_agent_stuck_seconds", Gauge, "For how long an agent has been in its cycle; 0 while it sleeps.", "agent")

	peerUp  = define("rdmad_peer_up", Gauge, "1 while there is a session with the peer.", "peer")
	peerAge = define("rdmad_peer_state_age_seconds", Gauge, "For how long it has been so.", "peer")

	transport   = define("rdmad_transport_info", Gauge, "1, with the provider that carries data between nodes, and what its device says of itself.", "transport", "detail")
	configInfo  = define("rdmad_config_info", Gauge, "1, with the digest of the configuration: see rdmad config check.", "digest")
	buildInfo   = define("rdmad_build_info", Gauge, "1, with the version of the core and the name of the node.", "version", "node")
	startTime   = define("rdmad_start_time_seconds", Gauge, "When the core started, in seconds since 1970.")
	agentCounts = fromTable(counters.Infos[counters.AgentCounts](), "agent")
	nodeCounts  = fromTable(counters.Infos[counters.NodeCounts]())
)

// fromTable defines the metrics of a table of counters.
func fromTable(infos []counters.Info, labels ...string) []*Metric {
	list := make([]*Metric, len(infos))
	for i, info := range infos {
		if info.Gauge {
			list[i] = define("rdmad_"+info.Name, Gauge, info.Help, labels...)
		} else {
			list[i] = define("rdmad_"+info.Name+"_total", Counter, info.Help, labels...)
		}
	}
	return list
}
