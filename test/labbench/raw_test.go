package main

import (
	"slices"
	"testing"
)

const latencyOutput = `
---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Dual-port       : OFF		Device         : rxe0
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      2000          11.02          250.71       13.12              13.77          4.21            30.10                  77.40
---------------------------------------------------------------------------------------
`

const bandwidthOutput = ` #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8192       5000             40.12              39.87		   0.005103
`

func TestResultLine(t *testing.T) {
	got, err := resultLine(latencyOutput, 64)
	if err != nil || len(got) < 5 || got[4] != 13.12 {
		t.Errorf("%v, %v", got, err)
	}
	got, err = resultLine(bandwidthOutput, 8192)
	if err != nil || !slices.Equal(got, []float64{8192, 5000, 40.12, 39.87, 0.005103}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "8192 x y z w", latencyOutput} {
		if got, err := resultLine(bad, 8192); err == nil {
			t.Errorf("%v from %q", got, bad)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{3, 1}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.v); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.v, got, c.want)
		}
	}
}

func TestCompare(t *testing.T) {
	raw := []RawResult{{Tool: "ib_write_lat", Size: 64, LatencyUS: 10}, {Tool: "ib_write_bw", Size: 64, Rate: 1000}, {Tool: "ib_write_bw", Size: 8192, Rate: 500}}
	for _, c := range []struct {
		r    Result
		want float64
	}{
		{Result{Size: 64, Clients: 1, Depth: 1, P50US: 50, Rate: 7}, 2.5},
		{Result{Size: 64, Clients: 8, Depth: 1, P50US: 50, Rate: 4000}, 4},
		{Result{Size: 8192, Clients: 8, Depth: 8, Rate: 400}, 0.8},
		{Result{Size: 100, Clients: 8, Depth: 8, Rate: 400}, 0},
	} {
		if c.r.compare(raw); c.r.Ratio != c.want {
			t.Errorf("%+v: want %v", c.r, c.want)
		}
	}
}
