package cputime

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	before, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 1e6; n++ {
		runtime.Gosched()
	}
	if after, err := Of(0); err != nil || after <= before || after > before+time.Minute {
		t.Errorf("%v, %v, then %v", before, err, after)
	}
	if _, err := Of(1 << 22); err == nil { // PID_MAX_LIMIT
		t.Error("a process that cannot exist has a processor time")
	}
}
