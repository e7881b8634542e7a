package webpage

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"
)

// However many look, there is one question at a time, and no more than one per interval.
func TestOneSampler(t *testing.T) {
	const interval, rounds = 50 * time.Millisecond, 6
	src := &counting{}
	_, s := open(t, src, Options{Interval: interval})
	start := time.Now()
	var all []*watching
	for range 8 {
		all = append(all, watch(t, s.URL))
	}
	for range rounds {
		for _, w := range all {
			w.next()
		}
	}
	asked := src.asked.Load()
	if most := 1 + int64(time.Since(start)/interval); asked > most || src.most.Load() != 1 {
		t.Errorf("asked %d times in %v, %d at once; want at most %d", asked, time.Since(start), src.most.Load(), most)
	}
}

// While nobody looks nothing runs, and who comes back is not shown what was.
func TestNobodyLooks(t *testing.T) {
	src := &counting{}
	p, s := open(t, src, Options{Interval: quick})
	for range 3 {
		w := watch(t, s.URL)
		w.next()
		w.next()
		w.leave()
		eventually(t, "the sampler has ended", func() bool { n, sampling := p.viewers(); return n == 0 && !sampling })
		before := src.asked.Load()
		p.hub.mu.Lock()
		last := p.hub.last
		p.hub.mu.Unlock()
		if last != nil {
			t.Error("the last sample is still held")
		}
		if after := src.asked.Load(); after != before {
			t.Errorf("asked %d times more", after-before)
		}
	}
}

// Viewers who come and go do not hurry the source.
func TestViewersComeAndGo(t *testing.T) {
	const interval = 100 * time.Millisecond
	src := &counting{}
	p, _ := open(t, src, Options{Interval: interval})
	start := time.Now()
	for range 2000 {
		v, err := p.hub.join("tcp")
		if err != nil {
			t.Fatal(err)
		}
		p.hub.leave(v)
	}
	v, err := p.hub.join("tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer p.hub.leave(v)
	<-v.news
	<-v.news
	asked := src.asked.Load()
	if most := 1 + int64(time.Since(start)/interval); asked > most || src.most.Load() != 1 {
		t.Errorf("asked %d times in %v, %d at once; want at most %d", asked, time.Since(start), src.most.Load(), most)
	}
}

// Who joins while a sample is new has it at once.
func TestFirstSample(t *testing.T) {
	src := &counting{}
	_, s := open(t, src, Options{Interval: limit})
	watch(t, s.URL).next()
	watch(t, s.URL).next()
	if n := src.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// A viewer who was away for several samples gets the latest, not all of them.
func TestLatestSample(t *testing.T) {
	src := &counting{}
	src.answer = func(context.Context) (json.RawMessage, error) {
		return json.Marshal(src.asked.Load())
	}
	p, _ := open(t, src, Options{Interval: time.Millisecond})
	v, err := p.hub.join("tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer p.hub.leave(v)
	eventually(t, "several samples", func() bool { return src.asked.Load() > 5 })
	var n int64
	if err := json.Unmarshal((<-v.news).status, &n); err != nil || n < 5 {
		t.Errorf("sample %d, %v", n, err)
	}
}

func TestClose(t *testing.T) {
	hanging := make(chan struct{}, 1)
	src := &counting{answer: func(ctx context.Context) (json.RawMessage, error) {
		hanging <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	p, s := open(t, src, Options{})
	w := watch(t, s.URL)
	<-hanging
	p.Close()
	w.ends()
	if _, sampling := p.viewers(); sampling {
		t.Error("there is still a sampler")
	}
	if a := get(t, s.URL+"/events"); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d after Close", a.StatusCode)
	}
	if a := get(t, s.URL+"/"); a.StatusCode != http.StatusOK {
		t.Errorf("the page has status %d after Close", a.StatusCode)
	}
	p.Close()
}
