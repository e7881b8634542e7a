package handoff

import (
	"encoding/json"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
)

// A configuration is in force when all of its pieces have come, and never a part of one, whichever piece is lost.
func TestPiecesOfAConfiguration(t *testing.T) {
	cfg := config.Default()
	for i := range uint32(30000) { // a long list, of which a part is a list, too
		cfg.Domains[0].UIDs = append(cfg.Domains[0].UIDs, 10000+i)
	}
	parts := PartsOf(cfg)
	if len(parts) < 4 {
		t.Fatalf("only %d pieces", len(parts))
	}
	tell := func(b *Briefing, p *ConfigPart) {
		data, err := json.Marshal(Note{Part: p})
		if err != nil {
			t.Fatal(err)
		}
		b.Take(data)
	}
	for lost := range parts {
		b := NewBriefing("test", nil)
		for i, p := range parts {
			if i != lost {
				tell(b, p)
			}
		}
		if c := b.Config.Load(); c != nil {
			t.Errorf("without piece %d of %d: a configuration that admits %d users is in force", lost, len(parts), len(c.Domains[0].UIDs))
		}
		for _, p := range parts {
			tell(b, p)
		}
		if c := b.Config.Load(); c == nil || c.Digest() != cfg.Digest() || c.SupervisorDigest != cfg.Digest() {
			t.Errorf("after piece %d was lost, the whole is not in force", lost)
		}
	}
}
