package randomfill

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/internal/perf"
)

// Drawn lists fit their layout, are the same again, and have every page sooner or later.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		seed, round := rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "round")
		lists := l.Draw(seed, round)
		if err := l.CheckLists(lists); err != nil {
			t.Fatal(err)
		}
		again := l.Draw(seed, round)
		for r := range lists {
			if !slices.Equal(lists[r], again[r]) {
				t.Fatalf("the same seed draws %v and %v", lists[r], again[r])
			}
		}
	})
	l := Layout{PageSize: 1, Region: 10, Pages: 3}
	var seen [Regions][10]bool
	for round := range uint64(200) {
		for r, list := range l.Draw(1, round) {
			for _, page := range list {
				seen[r][page] = true
			}
		}
	}
	for r := range seen {
		if slices.Contains(seen[r][:], false) {
			t.Errorf("region %d: some pages are never drawn: %v", r, seen[r])
		}
	}
}

func TestBadLayouts(t *testing.T) {
	for _, c := range []struct {
		l    Layout
		word string
	}{
		{Layout{PageSize: 0, Pages: 1, Region: 10}, "pages of 0 bytes"},
		{Layout{PageSize: -1, Pages: 1, Region: 10}, "pages of -1 bytes"},
		{Layout{PageSize: 11, Pages: 1, Region: 10}, "pages of 11 bytes in regions of 10"},
		{Layout{PageSize: 1, Pages: 1, Region: 0}, "regions of 0 bytes"},
		{Layout{PageSize: 1, Pages: 1, Region: MaxRegion + 1}, "--region-size"},
		{Layout{PageSize: 4, Pages: 0, Region: 10}, "0 pages"},
		{Layout{PageSize: 4, Pages: 3, Region: 11}, "which have 2"},
		{Layout{PageSize: 1, Pages: MaxPages + 1, Region: MaxRegion}, "--pages"},
	} {
		err := c.l.Check()
		if !perf.IsInput(err) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%+v: %v", c.l, err)
		}
	}
	if err := (Layout{PageSize: 4, Pages: 2, Region: 11}).Check(); err != nil {
		t.Error(err)
	}
}

func TestBadLists(t *testing.T) {
	l := Layout{PageSize: 4, Pages: 2, Region: 19} // pages 0 to 3
	for _, c := range []struct {
		lists Lists
		word  string
	}{
		{Lists{{0, 1}, {0}}, "region 1: a list of 1 pages, want 2"},
		{Lists{nil, {0, 1}}, "region 0: a list of 0 pages"},
		{Lists{{0, 1, 2}, {0, 1}}, "region 0: a list of 3 pages"},
		{Lists{{0, 4}, {0, 1}}, "region 0: page 4 is out of range: the region has pages 0 to 3 (--index-0)"},
		{Lists{{0, 1}, {1 << 31, 1}}, "region 1: page 2147483648 is out of range"},
		{Lists{{0, 1}, {3, 3}}, "region 1: page 3 is in the list twice, at 0 and 1 (--index-1)"},
	} {
		err := l.CheckLists(c.lists)
		if !perf.IsInput(err) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%v: %v", c.lists, err)
		}
	}
	if err := l.CheckLists(Lists{{3, 0}, {0, 3}}); err != nil {
		t.Error(err)
	}
}

// A request is read as it was written, and a change of any byte is refused or harmless.
func TestRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		q := request{
			id: rapid.Uint32().Draw(t, "id"), seed: rapid.Uint64().Draw(t, "seed"),
			pageSize: uint64(l.PageSize), lists: l.Draw(rapid.Uint64().Draw(t, "lists"), 0),
		}
		b := make([]byte, requestSize(l.Pages))
		q.encode(b)
		got, err := l.decode(b)
		if err != nil || got.id != q.id || got.seed != q.seed || !slices.Equal(got.lists[0], q.lists[0]) || !slices.Equal(got.lists[1], q.lists[1]) {
			t.Fatalf("%+v became %+v: %v", q, got, err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := l.decode(b[:cut]); !perf.IsInput(err) {
			t.Fatalf("%d of %d bytes: %v", cut, len(b), err)
		}
	})
}

// Whatever comes, what is taken for a request names only pages that there are, and becomes the
// same bytes again.
func FuzzRequest(f *testing.F) {
	l := Layout{PageSize: 100, Pages: 3, Region: 777}
	b := make([]byte, requestSize(l.Pages))
	request{id: 7, seed: 8, pageSize: 100, lists: Lists{{0, 6, 3}, {5, 1, 2}}}.encode(b)
	f.Add(b)
	f.Add(b[:31])
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := l.decode(b)
		if err != nil {
			if !perf.IsInput(err) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if err := l.CheckLists(q.lists); err != nil {
			t.Fatal(err)
		}
		again := make([]byte, requestSize(l.Pages))
		q.encode(again)
		if !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
