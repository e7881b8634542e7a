package main

import (
	"fmt"
	"testing"
)

const transferOutput = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      300     =300     37k         0.42s      0.09     698.51       0.00
`

func TestTransferTime(t *testing.T) {
	if us, err := transferTime(transferOutput, 64); err != nil || us != 698.51 {
		t.Errorf("%v, %v", us, err)
	}
	for _, bad := range []string{"", "64 300 =300 37k 0.42s 0.09 fast 0.00", "64 300 =300 37k 0.42s 0.09 0 0.00", "64 300"} {
		if us, err := transferTime(bad, 64); err == nil {
			t.Errorf("%v from %q", us, bad)
		}
	}
	if us, err := transferTime(transferOutput, 6); err == nil {
		t.Errorf("%v for another size", us)
	}
}

// A figure counts only if it is one of what was asked for, in the unit of the other tool.
func TestPerfOutput(t *testing.T) {
	output := func(factor int, verified bool, provider string, size, count int) []byte {
		return fmt.Appendf(nil, `{"test_info":{"rtt_factor":%d,"verified":%t,"client":{"provider":%q}},
			"results":[{"MsgSize":%d,"n_iterations":%d,"t_typical":1.5,"t_avg":2.5,"BW_average":3.5}]}`, factor, verified, provider, size, count)
	}
	good := output(2, false, "verbs", 64, 100)
	for f, want := range map[figure]float64{typical: 1.5, average: 2.5, bandwidth: 3.5} {
		c := comparison{size: 64, figure: f, factor: 2}
		if v, err := c.read(good, "verbs", 100, false); err != nil || v != want {
			t.Errorf("%v: %v, %v", f, v, err)
		}
	}
	c := comparison{size: 64, factor: 2}
	for name, bad := range map[string][]byte{
		"no JSON":           []byte("rdmad: no such device"),
		"no result":         []byte(`{"test_info":{"rtt_factor":2,"client":{"provider":"verbs"}},"results":[]}`),
		"whole round trips": output(1, false, "verbs", 64, 100),
		"verified":          output(2, true, "verbs", 64, 100),
		"another provider":  output(2, false, "tcp", 64, 100),
		"another size":      output(2, false, "verbs", 65, 100),
		"ended early":       output(2, false, "verbs", 64, 99),
		"no figure":         []byte(`{"test_info":{"rtt_factor":2,"client":{"provider":"verbs"}},"results":[{"MsgSize":64,"n_iterations":100}]}`),
	} {
		if v, err := c.read(bad, "verbs", 100, false); err == nil {
			t.Errorf("%s: %v", name, v)
		}
	}
}
