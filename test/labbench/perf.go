package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// PerfResult is a figure of "rdmad perf" beside that of a tool that does the same: medians of
// the rounds, in the same unit.
type PerfResult struct {
	What string `json:"what"`
	Size int    `json:"size_bytes"`
	// Tool is what is compared with, and how its figure is made.
	Tool string `json:"tool"`
	// Unit is "us" of a latency, of which less is better, or "MB/s" of 2^20 bytes.
	Unit   string  `json:"unit"`
	Theirs float64 `json:"theirs"`
	Ours   float64 `json:"ours"`
	// Ratio is Ours as a multiple of Theirs.
	Ratio float64 `json:"ratio"`
}

// figure says which number of a tool's result counts.
type figure int

const (
	// typical and average are latencies: fi_pingpong knows the average only.
	typical figure = iota
	average
	bandwidth
)

// unit is that of PerfResult.
func (f figure) unit() string {
	if f == bandwidth {
		return "MB/s"
	}
	return "us"
}

// comparison is something that rdmad perf and another tool both measure.
type comparison struct {
	what string
	size int
	// tool is one of perftest's, or fi_pingpong with these arguments, whose last is the
	// server's address.
	tool string
	fi   []string
	// ours are the arguments of rdmad perf, without those of the fabric; provider is
	// libfabric's, empty: fabric verbs.
	ours     []string
	provider string
	figure   figure
	// factor is by what both divide round trips: 2 for the time of one way, 0 for bandwidth.
	factor int
	// verifies: the command of rdmad always verifies, and knows one size only.
	verifies bool
}

var comparisons = []comparison{
	{what: "write", size: 64, tool: "ib_write_lat", ours: []string{"pingpong", "--op", "write"}, factor: 2},
	{what: "send", size: 64, tool: "ib_send_lat", ours: []string{"pingpong", "--op", "send"}, factor: 2},
	{what: "read", size: 64, tool: "ib_read_lat", ours: []string{"pingpong", "--op", "read"}, factor: 1},
	{what: "fetch-add", size: 8, tool: "ib_atomic_lat", ours: []string{"atomics", "--clients", "1", "-A", "FETCH_AND_ADD"}, factor: 1, verifies: true},
	{what: "writes", size: 64 << 10, tool: "ib_write_bw", ours: []string{"blast", "--op", "write"}, figure: bandwidth},
	{what: "send", size: 64, tool: "fi_pingpong", fi: []string{"-p", "tcp", "-e", "rdm", "127.0.0.1"},
		ours: []string{"pingpong", "--op", "send"}, provider: "tcp;ofi_rxm", figure: average, factor: 2},
	// What rdmad has for the device that libfabric reaches by verbs;ofi_rxm is fabric verbs.
	{what: "send", size: 64, tool: "fi_pingpong", fi: []string{"-p", "verbs;ofi_rxm", "-e", "rdm"},
		ours: []string{"pingpong", "--op", "send"}, figure: average, factor: 2},
}

// name is what the tool is called in the table.
func (c *comparison) name() string {
	if c.fi == nil {
		return c.tool
	}
	return c.tool + " " + strings.Join(c.fi[:2], " ")
}

// perfFigures collects the rounds, theirs and ours by the index of the comparison.
type perfFigures struct{ theirs, ours map[int][]float64 }

func newPerfFigures() *perfFigures {
	return &perfFigures{theirs: make(map[int][]float64), ours: make(map[int][]float64)}
}

// included are the indices of the comparisons that can be made: without a build with libfabric
// those with its providers are left out.
func (o *options) included() []int {
	var all []int
	for i, c := range comparisons {
		if c.provider == "" || o.libfabric != "" {
			all = append(all, i)
		}
	}
	return all
}

// measure is one round: each tool, and right after it rdmad. checked adds a run of rdmad each
// that compares every byte, and whose figures do not count.
func (f *perfFigures) measure(ctx context.Context, o *options, checked bool) error {
	for _, i := range o.included() {
		c := &comparisons[i]
		theirs, err := c.theirs(ctx, o)
		if err != nil {
			return err
		}
		ours, err := c.run(ctx, o, false)
		if err == nil && checked && !c.verifies {
			_, err = c.run(ctx, o, true)
		}
		if err != nil {
			return err
		}
		f.theirs[i], f.ours[i] = append(f.theirs[i], theirs), append(f.ours[i], ours)
	}
	return nil
}

func (f *perfFigures) results(o *options) []PerfResult {
	var rs []PerfResult
	for _, i := range o.included() {
		c := comparisons[i]
		r := PerfResult{What: c.what, Size: c.size, Tool: c.name(), Unit: c.figure.unit(), Theirs: median(f.theirs[i]), Ours: median(f.ours[i])}
		if r.Theirs > 0 {
			r.Ratio = r.Ours / r.Theirs
		}
		rs = append(rs, r)
	}
	return rs
}

// theirs runs the other tool, again where it has no figure: ib_write_bw has printed a bandwidth of 0.
func (c *comparison) theirs(ctx context.Context, o *options) (float64, error) {
	for range 3 {
		if v, err := c.theirsOnce(ctx, o); err != nil || v > 0 {
			return v, err
		}
	}
	return 0, fmt.Errorf("%s, three times: its figure is 0", c.name())
}

func (c *comparison) theirsOnce(ctx context.Context, o *options) (float64, error) {
	if c.fi != nil {
		return fiPingPong(ctx, o, c)
	}
	size := []string{"-s", strconv.Itoa(c.size)}
	if c.verifies {
		size = []string{"-A", "FETCH_AND_ADD"}
	}
	fields, err := perftest(ctx, o, c.tool, c.size, o.messages, size...)
	if err != nil {
		return 0, err
	}
	if c.figure == bandwidth {
		return fields[3], nil // #bytes #iterations BW-peak BW-average ...
	}
	return fields[4], nil // #bytes #iterations t_min t_max t_typical ...
}

// fiPingPong returns the microseconds of a transfer, which are those of half a round trip.
func fiPingPong(ctx context.Context, o *options, c *comparison) (float64, error) {
	args := append([]string{"-S", strconv.Itoa(c.size), "-I", strconv.Itoa(o.messages)}, c.fi[:4]...)
	address := o.address
	if len(c.fi) > 4 {
		address = c.fi[4]
	}
	// Else its completion queue is larger than soft RoCE has any.
	out, err := serverAndClient(ctx, c.tool, args, address, "FI_UNIVERSE_SIZE=16")
	if err != nil {
		return 0, err
	}
	return transferTime(out, c.size)
}

// transferTime finds fi_pingpong's line of figures: bytes, messages sent and acknowledged, bytes
// in all, time, MB/sec, usec/xfer, Mxfers/sec.
func transferTime(out string, size int) (float64, error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 7 || words[0] != strconv.Itoa(size) {
			continue
		}
		if us, err := strconv.ParseFloat(words[6], 64); err == nil && us > 0 {
			return us, nil
		}
	}
	return 0, fmt.Errorf("no result for %d bytes in:\n%s", size, out)
}

// perfOutput is what is looked at of what "rdmad perf --json" prints.
type perfOutput struct {
	Info struct {
		RTTFactor int  `json:"rtt_factor"`
		Verified  bool `json:"verified"`
		Client    struct {
			Provider string `json:"provider"`
		} `json:"client"`
	} `json:"test_info"`
	Results []struct {
		Size      int     `json:"MsgSize"`
		Count     uint64  `json:"n_iterations"`
		Typical   float64 `json:"t_typical"`
		Average   float64 `json:"t_avg"`
		Bandwidth float64 `json:"BW_average"`
	} `json:"results"`
}

// run runs rdmad perf.
func (c *comparison) run(ctx context.Context, o *options, verify bool) (float64, error) {
	program, fabric, provider := o.rdmad, []string{"--fabric", "verbs", "-d", o.device, "-x", strconv.Itoa(o.gid)}, "verbs"
	if c.provider != "" {
		program, fabric = o.libfabric, []string{"--fabric", "libfabric", "--provider", c.provider}
		provider = "libfabric " + c.provider
	}
	args := append(append([]string{"perf"}, c.ours...), append(fabric, "--self", "--json", "-n", strconv.Itoa(o.messages))...)
	if !c.verifies {
		args = append(args, "-s", strconv.Itoa(c.size))
	}
	if verify {
		args = append(args, "--verify")
	}
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	var remarks strings.Builder
	cmd.Stderr = &remarks
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%v: %w\n%s%s", cmd.Args, err, out, remarks.String())
	}
	v, err := c.read(out, provider, o.messages, verify || c.verifies)
	if err != nil {
		return 0, fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return v, nil
}

// read finds the figure, and makes sure that it is one of what was asked for, in the unit of the
// other tool.
func (c *comparison) read(out []byte, provider string, messages int, verify bool) (float64, error) {
	var r perfOutput
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, err
	}
	if len(r.Results) != 1 || r.Results[0].Size != c.size || r.Results[0].Count != uint64(messages) {
		return 0, fmt.Errorf("want one result, of %d messages of %d bytes", messages, c.size)
	}
	if r.Info.RTTFactor != c.factor || r.Info.Verified != verify || r.Info.Client.Provider != provider {
		return 0, fmt.Errorf("want round trips divided by %d, verified %t, provider %q", c.factor, verify, provider)
	}
	v := []float64{r.Results[0].Typical, r.Results[0].Average, r.Results[0].Bandwidth}[c.figure]
	if v <= 0 {
		return 0, errors.New("it has no figure")
	}
	return v, nil
}

// printPerf writes the table for people.
func (r *Report) printPerf(out io.Writer) error {
	_, err := fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "rdmad perf\tbytes\tunit\trdmad\tof\t\tratio\t")
	for _, v := range r.Perf {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%.2f\t\n", v.What, v.Size, v.Unit, number(v.Ours, 2), v.Tool, number(v.Theirs, 2), v.Ratio)
	}
	return errors.Join(err, t.Flush())
}
