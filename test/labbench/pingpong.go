package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"text/tabwriter"
	"time"
)

// PingPong is a figure of test/labbench/pingpong, two processes that write to each other
// and nothing else: the median of the rounds.
type PingPong struct {
	Idle string `json:"idle"`
	// Request and Answer are sizes in bytes.
	Request     int `json:"request_bytes"`
	Answer      int `json:"answer_bytes"`
	Outstanding int `json:"outstanding"`
	// Rate is in round trips per second.
	Rate  float64 `json:"round_trips_per_s"`
	P50US float64 `json:"p50_us"`
}

// bare is a PingPong without its figures.
type bare struct {
	idle                         string
	request, answer, outstanding int
}

var bares = []bare{
	{"busy", 64, 64, 1}, {"busy", 64, 64, 8}, {"busy", 64, 8 << 10, 8},
	{"event", 64, 64, 1}, {"event", 64, 64, 8}, {"event", 64, 8 << 10, 8},
}

// pingPongs collects the rounds.
type pingPongs struct{ rates, p50s map[bare][]float64 }

func newPingPongs() *pingPongs {
	return &pingPongs{rates: make(map[bare][]float64), p50s: make(map[bare][]float64)}
}

func (f *pingPongs) measure(ctx context.Context, o *options) error {
	seconds := max(1, int(o.duration.Seconds()))
	for _, b := range bares {
		ctx, cancel := context.WithTimeout(ctx, toolLimit)
		cmd := exec.CommandContext(ctx, o.pingpong, o.device, strconv.Itoa(o.gid), strconv.Itoa(b.request), strconv.Itoa(b.answer),
			strconv.Itoa(b.outstanding), b.idle, strconv.Itoa(seconds))
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
		rate, p50, err := pingPongLine(string(out))
		if err != nil {
			return err
		}
		f.rates[b], f.p50s[b] = append(f.rates[b], rate), append(f.p50s[b], p50)
	}
	return nil
}

// pingPongLine reads what pingpong prints.
func pingPongLine(out string) (rate, p50 float64, err error) {
	if n, err := fmt.Sscanf(out, "%g %g\n", &rate, &p50); err != nil || n != 2 || rate <= 0 || p50 <= 0 {
		return 0, 0, fmt.Errorf("pingpong printed %q", out)
	}
	return rate, p50, nil
}

func (f *pingPongs) results() []PingPong {
	var rs []PingPong
	for _, b := range bares {
		rs = append(rs, PingPong{
			Idle: b.idle, Request: b.request, Answer: b.answer, Outstanding: b.outstanding,
			Rate: median(f.rates[b]), P50US: median(f.p50s[b]),
		})
	}
	return rs
}

// printPingPong writes the table for people.
func (r *Report) printPingPong(out io.Writer) error {
	_, err := fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "bare ping-pong\trequest\tanswer\toutstanding\tround trips/s\tp50 us\t")
	for _, p := range r.PingPong {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t\n", p.Idle, p.Request, p.Answer, p.Outstanding, number(p.Rate, 0), number(p.P50US, 1))
	}
	return errors.Join(err, t.Flush())
}
