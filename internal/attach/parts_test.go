package attach_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// A message takes not much more memory than it has bytes: of a list of very many small elements nothing is made.
func TestMessageOfManyElements(t *testing.T) {
	for name, c := range map[string]struct{ begin, element, end string }{
		"methods":   {`{"type":"register","methods":[`, `{}`, `]}`},
		"others":    {`{"type":"ping","\u006dethods":[`, `{}`, `]}`},
		"ids":       {`{"type":"registered","method_ids":[`, `0`, `]}`},
		"nodes":     {`{"type":"resolve","target":{"avoid":[`, `""`, `]}}`},
		"lanes":     {`{"type":"have","have":{"lanes":[`, `0`, `]}}`},
		"regions":   {`{"type":"have","have":{"regions":[`, `{}`, `]}}`},
		"questions": {`{"type":"have","have":{"asking":[`, `0`, `]}}`},
		"route":     {`{"type":"resolved","route":{"lanes":[`, `0`, `]}}`},
	} {
		n := (attach.MaxMessage - len(c.begin) - len(c.end)) / (len(c.element) + 1)
		data := []byte(c.begin + strings.Repeat(c.element+",", n-1) + c.element + c.end)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := attach.DecodeMessage(data)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, attach.ErrInvalid) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %d elements: %v", name, n, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 {
			t.Errorf("%s: a message takes %d bytes", name, took)
		}
		runtime.KeepAlive(m)
	}
}

// The longest lists that there are pass.
func TestLongestLists(t *testing.T) {
	const shortest = `{"service":"s","method":"m","answer":0}`
	n := (attach.MaxMessage - 64) / (len(shortest) + 1)
	m, err := attach.DecodeMessage([]byte(`{"type":"register","methods":[` + strings.Repeat(shortest+",", n-1) + shortest + `]}`))
	if err != nil || len(m.Methods) != n || m.Methods[n-1].Method != "m" {
		t.Errorf("%d methods: %v", n, err)
	}
	have := &attach.Have{Regions: make([]attach.RegionInfo, attach.MaxHaveRegions), Asking: make([]uint64, attach.MaxAsks)}
	for id := range slots.MaxLanes {
		have.Lanes = append(have.Lanes, uint16(id))
	}
	for _, m := range []*attach.Message{
		{Type: attach.TypeHave, Have: have}, {Type: attach.TypeResolved, Route: &attach.Route{Lanes: have.Lanes}},
		{Type: attach.TypeRegistered, MethodIDs: make([]uint32, n)}, {Type: attach.TypeResolve, Target: &attach.Target{Avoid: make([]string, attach.MaxAvoid+1)}},
	} {
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := attach.DecodeMessage(data)
		if err != nil {
			t.Errorf("%s: %v", m.Type, err)
			continue
		}
		if again, err := json.Marshal(got); err != nil || string(again) != string(data) {
			t.Errorf("%s has become %.200s, %v", m.Type, again, err)
		}
	}
}

// What is no part of a message of its type is not kept with it; what is part of it is, and what nobody knows does no harm.
func TestPartsOfOthers(t *testing.T) {
	parts := map[string]string{
		"hello": `{"role":"client"}`, "welcome": `{"id":1}`, "fail": `{"code":"limit"}`, "target": `{"service":"s"}`, "route": `{"node":"n"}`, "lane": `{"id":1}`,
		"region": `{"size":1}`, "methods": `[{"service":"s"}]`, "method_ids": `[1]`, "node": `"n"`, "rtt_ns": `1`, "status": `{}`, "reason": `"r"`,
		"resumed": `{"ops_taken":1}`, "have": `{"lanes":[1]}`, "gone": `{"caller":1}`, "trace": `{"count":1}`, "traced": `{}`, "drain": `{"resume":true}`,
	}
	all := ""
	for name, value := range parts {
		all += `,"` + name + `":` + value
	}
	for kind, want := range map[attach.Type]string{
		attach.TypeHello: "hello", attach.TypeWelcome: "welcome", attach.TypeFail: "fail", attach.TypeResolve: "target", attach.TypeResolved: "route",
		attach.TypeRegister: "methods", attach.TypeRegistered: "method_ids", attach.TypeLane: "lane", attach.TypeClosed: "lane", attach.TypeMapped: "lane",
		attach.TypeAlloc: "region", attach.TypeRegion: "region", attach.TypeFree: "region", attach.TypeExport: "region node", attach.TypeExported: "node",
		attach.TypePing: "node", attach.TypePong: "node rtt_ns", attach.TypeStatusIs: "status", attach.TypeTrace: "trace", attach.TypeTraced: "traced",
		attach.TypeDrain: "drain", attach.TypeResumed: "resumed", attach.TypeHave: "have", attach.TypeGone: "lane gone", attach.TypeGoodbye: "reason",
		attach.TypeStatus: "", attach.TypeBye: "", attach.TypeWithdraw: "", attach.TypeStacks: "", attach.TypeTaken: "", attach.TypeSpilled: "", "later": "",
	} {
		m, err := attach.DecodeMessage([]byte(`{"type":"` + string(kind) + `","seq":7,"new":[{},{}]` + all + `}`))
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		for name := range parts {
			if _, has := got[name]; has != strings.Contains(" "+want+" ", " "+name+" ") {
				t.Errorf("%s: %s: %v", kind, name, has)
			}
		}
		if m.Type != kind || m.Seq != 7 {
			t.Errorf("%s has become %s %d", kind, m.Type, m.Seq)
		}
	}
}
