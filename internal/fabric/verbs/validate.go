package verbs

import (
	"fmt"
	"time"
)

// ConfigError says which value of the configuration cannot be used.
type ConfigError struct {
	// Key is the key below [verbs], such as "gid_index".
	Key string
	// Value is what was given, printed; Want what would be right.
	Value, Want string
}

// Error names the key.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("verbs: %s = %s: want %s", e.Key, e.Value, e.Want)
}

// maxDeviceName is the longest name of a device, as the kernel has it.
const maxDeviceName = 63

// check returns a *ConfigError for the first value that no device could use.
func (c *Config) check() error {
	for _, r := range []struct {
		key             string
		value, min, max int
	}{
		{"port", c.Port, 0, 255},
		{"gid_index", c.GIDIndex, AutoGID, MaxGIDIndex},
		{"timeout", c.Timeout, 0, 31},
		{"retry_count", c.RetryCount, 0, 7},
		{"rnr_retry", c.RNRRetry, 0, 7},
		{"min_rnr_timer", c.MinRNRTimer, 0, 31},
		{"max_rd_atomic", c.MaxReadAtomic, 1, 255},
		{"service_level", c.ServiceLevel, 0, 15},
		{"traffic_class", c.TrafficClass, 0, 255},
		{"hop_limit", c.HopLimit, 1, 255},
		{"pkey_index", c.PKeyIndex, 0, 65535},
		{"max_inline", c.MaxInline, 0, 4096},
	} {
		if r.value < r.min || r.value > r.max {
			return &ConfigError{Key: r.key, Value: fmt.Sprint(r.value), Want: fmt.Sprintf("%d to %d", r.min, r.max)}
		}
	}
	switch {
	case len(c.Device) > maxDeviceName:
		return &ConfigError{Key: "device", Value: fmt.Sprintf("%.20q...", c.Device), Want: fmt.Sprintf("at most %d bytes", maxDeviceName)}
	case c.Connect != ConnectOOB && c.Connect != ConnectCM:
		return &ConfigError{Key: "connect", Value: fmt.Sprintf("%q", c.Connect), Want: fmt.Sprintf("%q or %q", ConnectOOB, ConnectCM)}
	case c.MTU != 0 && !validMTU(c.MTU):
		return &ConfigError{Key: "mtu", Value: fmt.Sprint(c.MTU), Want: "256, 512, 1024, 2048, 4096 or 0"}
	case c.ConnectTimeout <= 0 || c.ConnectTimeout > time.Hour:
		return &ConfigError{Key: "connect_timeout", Value: c.ConnectTimeout.String(), Want: "more than 0 and at most 1h"}
	}
	return nil
}
