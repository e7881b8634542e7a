package daemon

import (
	"encoding/json"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabrics"
)

// What was wanted, what is used and why, as tools read it.
func TestFabricStatus(t *testing.T) {
	c := &conductor{cfg: config.Default(), fabrics: []*fabrics.Fabric{{Name: "tcp", Wanted: "auto", Fallback: "no device", Detail: "d"}}}
	data, err := c.status().encoded()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"fabric": "tcp", "fabric_wanted": "auto", "fallback_reason": "no device", "fabric_detail": "d"} {
		if got[key] != want {
			t.Errorf("%s is %v, want %q", key, got[key], want)
		}
	}
}
