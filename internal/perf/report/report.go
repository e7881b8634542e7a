package report

import (
	"encoding/json"
	"io"

	"github.com/rdmad/rdmad/internal/perf"
)

// Info says how the results came to be. Its keys are additions to perftest's test_info.
type Info struct {
	// Test is the tool and what it did, such as "pingpong send".
	Test string `json:"test"`
	// Wait is how both sides waited: "busy" or "event".
	Wait string `json:"wait"`
	// RTTFactor is by what round trips were divided: 2 for those that are reported as the
	// time of one way, as perftest does, else 1. 0 where there are no latencies.
	RTTFactor int `json:"rtt_factor,omitempty"`
	// TxDepth and RxDepth are how many messages, and receives, may be under way.
	TxDepth int `json:"tx_depth,omitempty"`
	RxDepth int `json:"rx_depth,omitempty"`
	// Queues is the number of queue pairs of each direction, 0 where there is one. Bidirectional:
	// both sides have sent, and bandwidth is that of both directions together.
	Queues        int  `json:"num_of_qps,omitempty"`
	Bidirectional bool `json:"bidirectional,omitempty"`
	// Inline is up to how many bytes a message is part of its work request.
	Inline int `json:"inline_size"`
	// Verified: every byte was compared, which takes time.
	Verified bool `json:"verified"`
	// Client and Server are what the sides really used.
	Client perf.Used `json:"client"`
	Server perf.Used `json:"server"`
}

// NewInfo says how a session of the client works.
func NewInfo(test string, w *perf.Work, s *perf.Session) Info {
	return Info{Test: test, Wait: Wait(w.Event), Inline: w.InlineLimit(s.Caps), Verified: w.Verify, Client: s.Used, Server: s.Theirs}
}

// Wait is what Info.Wait says.
func Wait(event bool) string {
	if event {
		return "event"
	}
	return "busy"
}

// Row is the result for one size of messages. What was not measured is nil.
type Row struct {
	Size int `json:"MsgSize"`
	// Iterations is how many messages the bandwidth is of.
	Iterations uint64 `json:"n_iterations"`
	*Latency
	*Bandwidth
	// ClientCPU and ServerCPU are of the whole processes while this size was measured.
	ClientCPU perf.CPU `json:"cpu_client"`
	ServerCPU perf.CPU `json:"cpu_server"`
	// Samples are the latencies, for plots; nil without them.
	Samples *Samples `json:"-"`
}

// Report is a run's result.
type Report struct {
	Info    Info  `json:"test_info"`
	Results []Row `json:"results"`
}

// WriteJSON writes the report as one indented object.
func (r *Report) WriteJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}
