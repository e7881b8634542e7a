package sandbox

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
)

// Whatever settings make of a node's configuration, the daemon must accept.
func TestConfigText(t *testing.T) {
	peers := []Peer{{"b", "127.0.0.1:2"}}
	for _, s := range []Settings{
		{},
		{TLS: true, TLSData: true},
		{Fabric: "verbs", Verbs: map[string]string{"device": "rxe0", "gid_index": "-1", "timeout": "18", "connect_timeout": "2s"},
			GroupMax: 1, MaxGroupDelay: "50us", Lanes: 3, Balance: "least-outstanding", Idle: "busy", SocketMode: "0666", LinkHold: "7s", TLS: true, Extra: "[limits]\nworkers = 7\n"},
	} {
		cfg, err := config.Parse("a.toml", []byte(configText("a", "/run/a.sock", "127.0.0.1:1", peers, s)))
		if err != nil {
			t.Errorf("%+v: %v", s, err)
			continue
		}
		if cfg.Node.Name != "a" || cfg.Node.Socket != "/run/a.sock" || cfg.Peers[0].Name != "b" {
			t.Errorf("%+v: %+v", s, cfg)
		}
		if v := cfg.Verbs; s.Verbs != nil && (v.Device != "rxe0" || v.GIDIndex != -1 || v.Timeout != 18 || v.ConnectTimeout != 2*time.Second) {
			t.Errorf("%+v: %+v", s, v)
		}
		if cfg.TLS.Mode == config.TLSRequired && (cfg.TLS.Data == config.TLSDataTLS) != s.TLSData {
			t.Errorf("%+v: %+v", s, cfg.TLS)
		}
		if s.GroupMax != 0 && (cfg.GroupSend.MaxMessages != 1 || cfg.GroupSend.MaxGroupDelay != 50*time.Microsecond || cfg.Agent.Idle != "busy" || cfg.Fabric.Provider != "verbs" || cfg.Limits.Workers != 7 || cfg.Node.LinkHold != 7*time.Second ||
			cfg.TLS.Mode != config.TLSRequired || cfg.TLS.Key != "/run/a-key.pem" || cfg.Lanes != (config.Lanes{PerPeer: 3, Balance: "least-outstanding"})) {
			t.Errorf("%+v: %+v", s, cfg)
		}
	}
}
