package daemon

import (
	"encoding/json"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
)

// note is what the supervisor tells the core: each part of it replaces what was told
// before, and parts that are not there change nothing. The upgrade's fields stand among
// the others, so that cores and supervisors of different releases understand each other.
type note struct {
	*UpgradeStatus
	// Errors are the distinct errors of the supervisor.
	Errors []event.Entry `json:"errors,omitempty"`
	// Reload is how the last reload went. Part is a piece of the configuration that is in
	// force since; the pieces come one after the other, before the note that tells of it.
	Reload *ReloadStatus `json:"reload,omitempty"`
	Part   *configPart   `json:"config_part,omitempty"`
}

// configPart is a piece of what Config.Own has written: it may be more than fits a message
// of the depot.
type configPart struct {
	Data []byte `json:"data"`
	// First begins anew, Last ends it.
	First bool `json:"first,omitempty"`
	Last  bool `json:"last,omitempty"`
}

// maxPart is the size of a piece.
const maxPart = 32 << 10

// partsOf cuts a configuration into pieces.
func partsOf(text []byte) (parts []*configPart) {
	for rest := text; len(rest) > 0 || len(parts) == 0; {
		n := min(len(rest), maxPart)
		parts = append(parts, &configPart{Data: rest[:n], First: len(parts) == 0, Last: n == len(rest)})
		rest = rest[n:]
	}
	return parts
}

// briefing is what the core knows from the supervisor. The methods of a nil briefing return
// nothing.
type briefing struct {
	upgraded atomic.Pointer[UpgradeStatus]
	errors   atomic.Pointer[[]event.Entry]
	reload   atomic.Pointer[ReloadStatus]
	// config is what is to be in force; configs receives when it has changed.
	config  atomic.Pointer[config.Config]
	configs chan struct{}
	// source is what the configuration is called; text are the pieces that have come.
	source string
	text   []byte
}

// newBriefing returns a briefing of which nothing is known yet.
func newBriefing(source string) *briefing {
	return &briefing{source: source, configs: make(chan struct{}, 1)}
}

// take takes a note. One that makes no sense is of another release, and ignored.
func (t *briefing) take(data json.RawMessage) {
	var n note
	if err := json.Unmarshal(data, &n); err != nil {
		return
	}
	if n.UpgradeStatus != nil && n.UpgradeStatus.Number > 0 {
		t.upgraded.Store(n.UpgradeStatus)
	}
	if n.Errors != nil {
		t.errors.Store(&n.Errors)
	}
	if n.Part != nil {
		t.takePart(n.Part)
	}
	if n.Reload != nil {
		t.reload.Store(n.Reload)
	}
}

// takePart takes a piece of a configuration.
func (t *briefing) takePart(p *configPart) {
	if p.First {
		t.text = nil
	}
	t.text = append(t.text, p.Data...)
	if !p.Last || len(t.text) > maxHandoff {
		return
	}
	cfg, err := config.ParseOwn(t.source, t.text)
	t.text = nil
	if err != nil {
		return // the supervisor has parsed the same
	}
	t.config.Store(cfg)
	select {
	case t.configs <- struct{}{}:
	default:
	}
}

// upgrade returns how the last upgrade went, or nil.
func (t *briefing) upgrade() *UpgradeStatus {
	if t == nil {
		return nil
	}
	return t.upgraded.Load()
}

// supervisorErrors returns the distinct errors of the supervisor.
func (t *briefing) supervisorErrors() []event.Entry {
	if t == nil {
		return nil
	}
	if p := t.errors.Load(); p != nil {
		return *p
	}
	return nil
}
