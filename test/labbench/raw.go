package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// toolLimit bounds one run of a tool, also on a guest whose host is busy.
const toolLimit = 2 * time.Minute

// rawPoint is a measurement of perftest.
type rawPoint struct {
	tool string
	size int
}

var rawPoints = []rawPoint{
	{"ib_write_lat", 64}, {"ib_write_lat", 8 << 10},
	{"ib_write_bw", 64}, {"ib_write_bw", 8 << 10}, {"ib_write_bw", 64 << 10}, {"ib_write_bw", bulkSize}, {"ib_read_bw", bulkSize},
}

// rawBytes is about how much a tool moves, in at least rawLeast messages.
const (
	rawBytes = 128 << 20
	rawLeast = 128
)

// rawFigures collects the rounds.
type rawFigures struct{ values map[rawPoint][]float64 }

func newRawFigures() *rawFigures { return &rawFigures{values: make(map[rawPoint][]float64)} }

func (f *rawFigures) measure(ctx context.Context, o *options) error {
	for _, p := range rawPoints {
		v, err := p.measure(ctx, o)
		if err != nil {
			return err
		}
		f.values[p] = append(f.values[p], v)
	}
	return nil
}

// measure returns microseconds for ib_write_lat and messages per second for others. It measures again where there is
// no figure, see theirs.
func (p rawPoint) measure(ctx context.Context, o *options) (float64, error) {
	for range 3 {
		if v, err := p.once(ctx, o); err != nil || v > 0 {
			return v, err
		}
	}
	return 0, fmt.Errorf("%s of %d bytes, three times: its figure is 0", p.tool, p.size)
}

func (p rawPoint) once(ctx context.Context, o *options) (float64, error) {
	if p.tool == "ib_write_lat" {
		return writeLatency(ctx, o, p.size)
	}
	return rate(ctx, o, p.tool, p.size)
}

func (f *rawFigures) checks() []float64 { return f.values[rawPoint{"ib_write_lat", 64}] }

func (f *rawFigures) results() []RawResult {
	var rs []RawResult
	for _, p := range rawPoints {
		r := RawResult{Tool: p.tool, Size: p.size}
		if v := median(f.values[p]); p.tool == "ib_write_lat" {
			r.LatencyUS = v
		} else {
			r.Rate = v
		}
		rs = append(rs, r)
	}
	return rs
}

// writeLatency returns the typical one-way latency of ib_write_lat in microseconds.
func writeLatency(ctx context.Context, o *options, size int) (float64, error) {
	fields, err := perftest(ctx, o, "ib_write_lat", size, 2000, "-s", strconv.Itoa(size))
	if err != nil {
		return 0, err
	}
	return fields[4], nil // #bytes #iterations t_min t_max t_typical ...
}

// rate returns the messages per second of ib_write_bw or ib_read_bw.
func rate(ctx context.Context, o *options, tool string, size int) (float64, error) {
	fields, err := perftest(ctx, o, tool, size, min(5000, max(rawLeast, rawBytes/size)), "-s", strconv.Itoa(size))
	if err != nil {
		return 0, err
	}
	return fields[4] * 1e6, nil // #bytes #iterations BW-peak BW-average MsgRate[Mpps]
}

// perftest runs a tool as server and client on the device and returns the numbers
// of its result line, which begins with size. how says what it shall measure.
func perftest(ctx context.Context, o *options, tool string, size, iterations int, how ...string) ([]float64, error) {
	args := append([]string{"-d", o.device, "-x", strconv.Itoa(o.gid), "-n", strconv.Itoa(iterations), "-F"}, how...)
	out, err := serverAndClient(ctx, tool, args, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	return resultLine(out, size)
}

// notYet is what clients say while their server does not listen.
var notYet = []string{"Couldn't connect", "Connection refused"}

// serverAndClient runs a tool twice, as a server and as the client of address, with env added to
// the environment, and returns what the client has printed.
func serverAndClient(ctx context.Context, tool string, args []string, address string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, tool, args...)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	}
	var serverOut bytes.Buffer
	server := command(args...)
	server.Stdout, server.Stderr = &serverOut, &serverOut
	if err := server.Start(); err != nil {
		return "", fmt.Errorf("%s: %w (Debian's packages perftest and libfabric-bin have the tools)", tool, err)
	}
	var out []byte
	// The server listens some time after its start; the client tries once.
	for try := 0; ; try++ {
		var err error
		out, err = command(append(slices.Clone(args), address)...).CombinedOutput()
		if err == nil {
			break
		}
		early := slices.ContainsFunc(notYet, func(s string) bool { return strings.Contains(string(out), s) })
		if try == 100 || ctx.Err() != nil || !early {
			cancel()
			return "", errors.Join(fmt.Errorf("%s: %w\n%s", tool, err, out), server.Wait())
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := server.Wait(); err != nil {
		return "", fmt.Errorf("%s, the server: %w\n%s", tool, err, serverOut.Bytes())
	}
	return string(out), nil
}

// resultLine finds the line of numbers that starts with the size.
func resultLine(out string, size int) ([]float64, error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 5 || words[0] != strconv.Itoa(size) {
			continue
		}
		var numbers []float64
		for _, w := range words {
			n, err := strconv.ParseFloat(w, 64)
			if err != nil {
				break
			}
			numbers = append(numbers, n)
		}
		if len(numbers) >= 5 {
			return numbers, nil
		}
	}
	return nil, fmt.Errorf("no result for %d bytes in:\n%s", size, out)
}

// median returns the middle value, of an even number the mean of the two in the middle.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
