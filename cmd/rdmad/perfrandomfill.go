package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/randomfill"
)

func newPerfRandomfill() *cobra.Command {
	var w perfWork
	t := new(randomfill.Tool)
	page, region := byteSize(1<<20), byteSize(16<<20)
	var index [randomfill.Regions][]uint
	c := newPerfCommand(randomfill.Name, func(c *cobra.Command) (perf.Tool, error) {
		t.PageSize, t.Region = int(page), int(region)
		if err := w.checkThresholds(); err != nil {
			return nil, err
		}
		f := c.Flags()
		switch {
		case f.Changed("index-0") != f.Changed("index-1"):
			return nil, usagef("--index-0 and --index-1: want the pages of both regions, or of none")
		case !f.Changed("index-0"):
			return t, nil
		case !f.Changed("pages"):
			t.Pages = len(index[0])
		}
		var err error
		t.Lists, err = pageLists(index)
		return t, err
	}, w.judge)
	c.Short = "Fill scattered pages of a client's memory with random bytes"
	c.Long = "The client offers two regions of memory and asks for pages of them to be filled: it sends a seed, the size of a page, which\n" +
		"pages of each region, and a number of its own. The server makes random bytes of the seed (MT19937-64) and writes each page to\n" +
		"its place; the last write brings the number back as its immediate. The client makes the same bytes and compares both regions,\n" +
		"pages and all else, to the last byte. On a fabric that keeps no order of writes, the last one is posted when all others have\n" +
		"completed. Latencies are those of whole requests, bandwidth is that of the server's writes."
	c.Example = "  rdmad perf randomfill --self\n  rdmad perf randomfill node1 -s 8KiB --pages 1000 -n 100\n" +
		"  rdmad perf randomfill node1 -s 64KiB --index-0 7,0,3 --index-1 1,2,250 --seed 42"
	f := c.Flags()
	f.VarP(&page, "size", "s", "size of a page")
	f.Var(&region, "region-size", "size of each of the client's two regions")
	f.IntVar(&t.Pages, "pages", 8, "pages of each region that a request fills, chosen at random from the seed")
	f.UintSliceVar(&index[0], "index-0", nil, "pages of the first region instead, such as 7,0,3, in the order in which they get their bytes")
	f.UintSliceVar(&index[1], "index-1", nil, "pages of the second region")
	f.Uint64VarP(&t.Rounds, "iters", "n", 1, "requests, one after the other, each with other bytes")
	f.IntVarP(&t.Depth, "tx-depth", "t", 128, "writes that the server may have under way")
	f.Uint64Var(&t.Seed, "seed", 1, "what bytes, and lists that are not given, are made of")
	f.BoolVarP(&t.Event, "events", "e", false, "sleep until there are completions instead of polling for them")
	w.bound(c, true, true)
	return c
}

// pageLists makes lists of pages of what flags have.
func pageLists(index [randomfill.Regions][]uint) (*randomfill.Lists, error) {
	lists := new(randomfill.Lists)
	for r, list := range index {
		for _, page := range list {
			if page > math.MaxUint32 {
				return nil, usagef("--index-%d: page %d is out of range", r, page)
			}
			lists[r] = append(lists[r], uint32(page))
		}
	}
	return lists, nil
}
