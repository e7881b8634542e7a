package turnstile

import (
	"fmt"
	"testing"
)

func TestOldestOfMost(t *testing.T) {
	many := []string{"2001:db8:1::1", "192.0.2.1", "user 0"}
	for i := range 61 {
		many = append(many, fmt.Sprintf("2001:db8:2::%x", i+1))
	}
	for name, test := range map[string]struct {
		hosts []string
		want  int
	}{
		"one":                                {[]string{"a"}, 0},
		"the oldest":                         {[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, 0},
		"a host with two":                    {[]string{"192.0.2.1", "192.0.2.2", "192.0.2.2"}, 1},
		"many addresses of one network":      {many, 3},
		"a host with two before such":        {append([]string{"198.51.100.1"}, append(many, "198.51.100.1")...), 0},
		"a network whose hosts have one":     {[]string{"2001:db8::1", "2001:db8::2", "192.0.2.2", "192.0.2.2"}, 2},
		"addresses of the old kind are none": {[]string{"192.0.2.9", "::ffff:192.0.2.1", "::ffff:192.0.2.2"}, 0},
		"links":                              {[]string{"2001:db8::1", "fe80::1%eth0", "fe80::2%eth0"}, 1},
	} {
		if got := OldestOfMost(test.hosts); got != test.want {
			t.Errorf("%s: %d of %v", name, got, test.hosts)
		}
	}
}
