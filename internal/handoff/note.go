package handoff

import (
	"encoding/json"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/status"
)

// Note is what the supervisor tells the core: each part of it replaces what was told
// before, and parts that are not there change nothing. The upgrade's fields stand among
// the others, so that cores and supervisors of different releases understand each other.
type Note struct {
	*status.Upgrade
	// Errors are the distinct errors of the supervisor.
	Errors []event.Entry `json:"errors,omitempty"`
	// Reload is how the last reload went. Part is a piece of the configuration that is in
	// force since; the pieces come one after the other, before the note that tells of it.
	Reload *status.Reload `json:"reload,omitempty"`
	Part   *ConfigPart    `json:"config_part,omitempty"`
}

// ConfigPart is a piece of what Config.Own has written: it may be more than fits a message
// of the depot.
type ConfigPart struct {
	Data []byte `json:"data"`
	// First begins anew, Last ends it.
	First bool `json:"first,omitempty"`
	Last  bool `json:"last,omitempty"`
	// Size is how many bytes all pieces have, in the last one: one that did not come would leave a configuration that
	// nobody has written. 0 from an older release.
	Size int `json:"size,omitempty"`
	// Digest is the supervisor's of the whole, in the last one; "" from an older release.
	Digest string `json:"digest,omitempty"`
}

// Configuration is one that is to be in force, with the digest that the supervisor has of it, "" if that is not known. Own
// digests differ where the releases of supervisor and core have other keys.
type Configuration struct {
	*config.Config
	SupervisorDigest string
}

// maxPart is the size of a piece.
const maxPart = 32 << 10

// PartsOf cuts a configuration into pieces.
func PartsOf(cfg *config.Config) (parts []*ConfigPart) {
	text := cfg.Own()
	for rest := text; len(rest) > 0 || len(parts) == 0; {
		n := min(len(rest), maxPart)
		parts = append(parts, &ConfigPart{Data: rest[:n], First: len(parts) == 0, Last: n == len(rest)})
		rest = rest[n:]
	}
	last := parts[len(parts)-1]
	last.Size, last.Digest = len(text), cfg.Digest()
	return parts
}

// Briefing is what the core knows from the supervisor. The methods of a nil briefing return
// nothing. Take is called by one goroutine at a time; all else is for any.
type Briefing struct {
	upgraded atomic.Pointer[status.Upgrade]
	errors   atomic.Pointer[[]event.Entry]
	// Reload is how the last reload went.
	Reload atomic.Pointer[status.Reload]
	// Config is what is to be in force; Configs receives when it has changed.
	Config  atomic.Pointer[Configuration]
	Configs chan struct{}
	// Source is what the configuration is called, and Overrides are the keys that are not from
	// the file; nil if that is not known.
	Source    string
	Overrides []config.Override
	// text are the pieces that have come.
	text []byte
}

// NewBriefing returns a briefing of which nothing is known yet.
func NewBriefing(source string, overrides []config.Override) *Briefing {
	return &Briefing{Source: source, Overrides: overrides, Configs: make(chan struct{}, 1)}
}

// Take takes a note. One that makes no sense is of another release, and ignored.
func (t *Briefing) Take(data json.RawMessage) {
	var n Note
	if err := json.Unmarshal(data, &n); err != nil {
		return
	}
	if n.Upgrade != nil && n.Upgrade.Number > 0 {
		t.upgraded.Store(n.Upgrade)
	}
	if n.Errors != nil {
		t.errors.Store(&n.Errors)
	}
	if n.Part != nil {
		t.takePart(n.Part)
	}
	if n.Reload != nil {
		t.Reload.Store(n.Reload)
	}
}

// takePart takes a piece of a configuration.
func (t *Briefing) takePart(p *ConfigPart) {
	if p.First {
		t.text = nil
	}
	t.text = append(t.text, p.Data...)
	if !p.Last || len(t.text) > maxStart {
		return
	}
	if p.Size != 0 && p.Size != len(t.text) {
		t.text = nil
		return // the supervisor knows that one was lost, and tells it again
	}
	cfg, err := config.ParseOwn(t.Source, t.text)
	t.text = nil
	if err != nil {
		return // the supervisor has parsed the same
	}
	t.Config.Store(&Configuration{cfg, p.Digest})
	select {
	case t.Configs <- struct{}{}:
	default:
	}
}

// Upgrade returns how the last upgrade went, or nil.
func (t *Briefing) Upgrade() *status.Upgrade {
	if t == nil {
		return nil
	}
	return t.upgraded.Load()
}

// SupervisorErrors returns the distinct errors of the supervisor.
func (t *Briefing) SupervisorErrors() []event.Entry {
	if t == nil {
		return nil
	}
	if p := t.errors.Load(); p != nil {
		return *p
	}
	return nil
}
