package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"time"

	"github.com/rdmad/rdmad/client"
)

// result is what a copying took.
type result struct {
	file           fileState
	elapsed        time.Duration
	workers, depth int
	latencies      *histogram
	// requestGroup and answerGroup are how many messages the daemon sent or got
	// with one post, on average.
	requestGroup, answerGroup float64
}

// print writes the result for people.
func (r *result) print(out io.Writer) {
	s := r.elapsed.Seconds()
	fmt.Fprintf(out, "%d pages, %d bytes, %d processes x %d in advance: %.0f pages/s, %.1f MB/s\n",
		r.file.pages(), r.file.size, r.workers, r.depth, float64(r.file.pages())/s, float64(r.file.size)/1e6/s)
	fmt.Fprintf(out, "latency of a page: p50 %v, p99 %v, max %v\n",
		r.latencies.quantile(0.5), r.latencies.quantile(0.99), r.latencies.Max.Round(time.Microsecond))
	fmt.Fprintf(out, "average group: %.1f requests, %.1f answers\n", r.requestGroup, r.answerGroup)
	fmt.Fprintln(out, "copy verified")
}

// groups are the daemon's counters of messages and of the groups they went in.
type groups struct {
	Requests      uint64 `json:"requests_sent"`
	RequestGroups uint64 `json:"request_groups"`
	Answers       uint64 `json:"answers_received"`
	AnswerGroups  uint64 `json:"answer_groups_received"`
}

func countGroups(ctx context.Context, conn *client.Conn) (groups, error) {
	var status struct {
		Counters groups `json:"counters"`
	}
	raw, err := conn.Status(ctx)
	if err != nil {
		return groups{}, err
	}
	return status.Counters, json.Unmarshal(raw, &status)
}

// since returns the average sizes of groups since an earlier count; 0 if there
// were none, as between processes of one node.
func (g groups) since(before groups) (request, answer float64) {
	ratio := func(messages, groups uint64) float64 {
		if groups == 0 {
			return 0
		}
		return float64(messages) / float64(groups)
	}
	return ratio(g.Requests-before.Requests, g.RequestGroups-before.RequestGroups),
		ratio(g.Answers-before.Answers, g.AnswerGroups-before.AnswerGroups)
}

// histogram counts durations in classes that are 1/16 of a power of two wide, so
// that a quantile is wrong by 6 % at most.
type histogram struct {
	Counts [1024]uint64  `json:"counts"`
	Max    time.Duration `json:"max_ns"`
}

// classBits is how many bits after the first make a class.
const classBits = 4

func (h *histogram) add(d time.Duration) {
	h.Counts[class(uint64(max(d, 0)))]++
	h.Max = max(h.Max, d)
}

// class returns the class of a number: where its first bit is, and the bits
// after it.
func class(n uint64) int {
	if n < 1<<classBits {
		return int(n)
	}
	shift := bits.Len64(n) - 1 - classBits
	return shift<<classBits + int(n>>shift)
}

// limit returns the largest number of a class.
func limit(class int) uint64 {
	if class < 1<<(classBits+1) {
		return uint64(class)
	}
	shift := class>>classBits - 1
	return (uint64(class)-uint64(shift)<<classBits+1)<<shift - 1
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Max = max(h.Max, o.Max)
}

// quantile returns the duration that the part q of all do not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	total := uint64(0)
	for _, n := range h.Counts {
		total += n
	}
	left := int64(float64(total) * q)
	for i, n := range h.Counts {
		if left -= int64(n); left < 0 {
			return min(time.Duration(limit(i)), h.Max).Round(time.Microsecond)
		}
	}
	return h.Max.Round(time.Microsecond)
}
