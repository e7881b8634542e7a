package main

import (
	"slices"
	"testing"
)

// That a fault makes no call fail is shown only where it was injected.
func TestUnproven(t *testing.T) {
	for _, c := range []struct {
		asked, want []string
		failed      bool
	}{
		{nil, nil, false},
		{[]string{"x"}, nil, false},
		{[]string{"x", "y", "z"}, []string{"y", "z"}, false},
		{[]string{"y", "z"}, []string{"y", "z"}, true},
	} {
		res := &result{run: &run{options: &options{noErrors: c.asked}}}
		res.unproven(map[string]*faultResult{"x": {Injected: 1}, "y": {}}) // z cannot be injected
		if !slices.Equal(res.Unproven, c.want) || res.Failed != c.failed {
			t.Errorf("%v: %v, failed %v", c.asked, res.Unproven, res.Failed)
		}
	}
}
