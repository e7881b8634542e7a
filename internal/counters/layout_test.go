package counters

import (
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"
)

// lines are the parts that are written by different threads, or often: each begins a
// cache line.
func TestLines(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[nodeRow](), reflect.TypeFor[agentRow](), reflect.TypeFor[laneRow](), reflect.TypeFor[serviceRow](), reflect.TypeFor[Lane](), reflect.TypeFor[Service]()} {
		if typ.Size()%lineSize != 0 {
			t.Errorf("%v has %d bytes, not whole cache lines", typ, typ.Size())
		}
	}
	for _, f := range []struct {
		of   reflect.Type
		name string
	}{
		{reflect.TypeFor[agentRow](), "counts"}, {reflect.TypeFor[agentRow](), "cycles"},
		{reflect.TypeFor[laneRow](), "lane"}, {reflect.TypeFor[serviceRow](), "counts"},
		{reflect.TypeFor[Lane](), "Outcomes"}, {reflect.TypeFor[Lane](), "GroupSizes"}, {reflect.TypeFor[Lane](), "Latency"}, {reflect.TypeFor[Lane](), "Queue"},
		{reflect.TypeFor[Service](), "Outcomes"}, {reflect.TypeFor[Service](), "Latency"}, {reflect.TypeFor[Service](), "Wait"},
	} {
		if field, ok := f.of.FieldByName(f.name); !ok || field.Offset%lineSize != 0 {
			t.Errorf("%v.%s is at %d", f.of, f.name, field.Offset)
		}
	}
	if size := reflect.TypeFor[head]().Size(); size > headSize {
		t.Errorf("the head has %d bytes, there is room for %d", size, headSize)
	}
	if s := (shape{3, 5, 7}); s.agentsAt()%lineSize+s.lanesAt()%lineSize+s.servicesAt()%lineSize+s.size()%8 != 0 {
		t.Error("parts do not begin with a cache line")
	}
}

// Each field is a word in the place of its number, and has a name of its own, a unit and
// a sentence.
func TestTables(t *testing.T) {
	check := func(typ reflect.Type, infos []Info) {
		t.Helper()
		var names []string
		for i, info := range infos {
			f := typ.Field(i)
			if f.Type.Kind() != reflect.Uint64 || f.Offset != uintptr(8*i) {
				t.Errorf("%v.%s is no word number %d", typ, f.Name, i)
			}
			if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(info.Name) || info.Unit == "" || !regexp.MustCompile(`^[A-Z0-9].*\.$`).MatchString(info.Help) {
				t.Errorf("%v.%s: %+v", typ, f.Name, info)
			}
			if slices.Contains(names, info.Name) {
				t.Errorf("%v: two counters are called %s", typ, info.Name)
			}
			names = append(names, info.Name)
		}
	}
	check(reflect.TypeFor[AgentCounts](), Infos[AgentCounts]())
	check(reflect.TypeFor[LaneCounts](), Infos[LaneCounts]())
	check(reflect.TypeFor[ServiceCounts](), Infos[ServiceCounts]())
	check(reflect.TypeFor[NodeCounts](), Infos[NodeCounts]())
	var a AgentCounts
	a.RequestGroups, a.AgentSleeps = 7, 9
	m := map[string]uint64{"agent_sleeps": 1}
	AddTo(m, &a)
	if m["request_groups"] != 7 || m["agent_sleeps"] != 10 || len(m) != len(Infos[AgentCounts]()) {
		t.Errorf("%v", m)
	}
}

// Every duration is in the bucket whose bounds it lies between, and quantiles are right
// up to a quarter.
func TestTimes(t *testing.T) {
	for b := range timeBuckets - 1 {
		end := TimeBound(b)
		if timeBucket(end-1) != b || timeBucket(end) != b+1 {
			t.Errorf("bucket %d ends at %d: %d, %d", b, end, timeBucket(end-1), timeBucket(end))
		}
		if before := end; b > 0 {
			if before = TimeBound(b - 1); end <= before || float64(end) > 1.25*float64(before) {
				t.Errorf("bucket %d is from %d to %d", b, before, end)
			}
		}
	}
	if timeBucket(0) != 0 || timeBucket(1<<63) != timeBuckets-1 || TimeBound(timeBuckets-1) != 0 {
		t.Error("the ends are elsewhere")
	}
	var h Times
	if h.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := range 1000 {
		h.Add(uint64(i+1) * uint64(time.Microsecond))
	}
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
		want := q * 1000
		if got := float64(h.Quantile(q)) / float64(time.Microsecond); got < want || got > max(1.26*want, 1.3) {
			t.Errorf("quantile %v: %v us, want %v", q, got, want)
		}
	}
	if h.Count() != 1000 || h.Sum != 500500*1000 || h.Max != 1e6 {
		t.Errorf("%d of %d ns, at most %d", h.Count(), h.Sum, h.Max)
	}
	earlier := h
	var fresh Times
	fresh.Add(1)
	fresh.Merge(&earlier)
	if fresh.Count() != 1001 || fresh.Max != 1e6 {
		t.Errorf("%d together", fresh.Count())
	}
}

func TestSizes(t *testing.T) {
	var h Sizes
	if h.Quantile(1) != 0 {
		t.Error("a quantile of nothing")
	}
	for n := uint64(1); n <= 256; n++ {
		h.Add(n)
	}
	want := [sizeBuckets]uint64{1, 1, 2, 4, 8, 16, 32, 64, 128}
	if h.Buckets != want || h.Count() != 256 || h.Sum != 257*128 || h.Max != 256 {
		t.Errorf("%+v", h)
	}
	if h.Quantile(0) != 1 || h.Quantile(0.5) != 256 || h.Quantile(0.49) != 128 {
		t.Errorf("%d, %d, %d", h.Quantile(0), h.Quantile(0.5), h.Quantile(0.49))
	}
	h.Add(1 << 60)
	if h.Buckets[sizeBuckets-1] != 1 || h.Quantile(1) != 1<<60 {
		t.Errorf("%+v", h)
	}
}

func TestOutcomes(t *testing.T) {
	var o Outcomes
	for _, s := range []uint32{0, 0, 6, 200, 1 << 31} {
		o.Add(s)
	}
	if m := o.Map(); m["ok"] != 2 || m["maybe_executed"] != 1 || m["other"] != 2 || len(m) != 3 || o.Total() != 5 {
		t.Errorf("%v, %d", m, o.Total())
	}
}
