package verbs

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestConfigCheck(t *testing.T) {
	good := Default()
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(*Config){
		"device":          func(c *Config) { c.Device = strings.Repeat("x", 64) },
		"port":            func(c *Config) { c.Port = -1 },
		"gid_index":       func(c *Config) { c.GIDIndex = -2 },
		"connect":         func(c *Config) { c.Connect = "tcp" },
		"mtu":             func(c *Config) { c.MTU = 1500 },
		"timeout":         func(c *Config) { c.Timeout = 32 },
		"retry_count":     func(c *Config) { c.RetryCount = 8 },
		"rnr_retry":       func(c *Config) { c.RNRRetry = -1 },
		"min_rnr_timer":   func(c *Config) { c.MinRNRTimer = 32 },
		"max_rd_atomic":   func(c *Config) { c.MaxReadAtomic = 0 },
		"service_level":   func(c *Config) { c.ServiceLevel = 16 },
		"traffic_class":   func(c *Config) { c.TrafficClass = 256 },
		"hop_limit":       func(c *Config) { c.HopLimit = 0 },
		"pkey_index":      func(c *Config) { c.PKeyIndex = 1 << 16 },
		"max_inline":      func(c *Config) { c.MaxInline = -1 },
		"connect_timeout": func(c *Config) { c.ConnectTimeout = 2 * time.Hour },
	} {
		c := Default()
		change(&c)
		err := c.check()
		var ce *ConfigError
		if !errors.As(err, &ce) || ce.Key != key || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := New(c); err == nil {
			t.Errorf("%s: New took it", key)
		}
	}
}
