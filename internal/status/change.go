package status

import (
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/version"
)

// How upgrades go.
const (
	// UpgradeDone: the new program is the core.
	UpgradeDone = "done"
	// UpgradeRefused: the program does not fit; the core goes on as if nothing had been.
	UpgradeRefused = "refused"
	// UpgradeUndone: the new program did not become ready, and the old one was
	// started again.
	UpgradeUndone = "undone"
)

// Upgrade is how the last upgrade went.
type Upgrade struct {
	// Number counts the upgrades since the supervisor started.
	Number int `json:"number"`
	// At is when it began: the program that counts is the one that was in place then.
	At time.Time `json:"at"`
	// Result is one of the constants above, Reason why it is not UpgradeDone.
	Result string `json:"result"`
	Reason string `json:"reason,omitempty"`
	// From are the versions of the core that served before, and To those of the program
	// that was to replace it, if it has said them.
	From version.Set `json:"from"`
	To   version.Set `json:"to"`
	// PauseMS is how long no core served, in milliseconds.
	PauseMS float64 `json:"pause_ms"`
}

// How reloads go.
const (
	// ReloadDone: what can be applied is in force.
	ReloadDone = "done"
	// ReloadRefused: nothing has changed.
	ReloadRefused = "refused"
)

// Reload is how the last reload went.
type Reload struct {
	// Number counts the reloads since the supervisor started.
	Number int `json:"number"`
	// At is when it was.
	At time.Time `json:"at"`
	// Result is one of the constants above, and Problems say why it is not ReloadDone.
	Result   string   `json:"result"`
	Problems []string `json:"problems,omitempty"`
	// Digest is that of the configuration in force since.
	Digest string `json:"digest"`
	// Applied is what was changed, and Pending what differs from the file until the daemon
	// is restarted. Of many there are only the first, and More is how many are left out.
	Applied []config.Change `json:"applied"`
	Pending []config.Change `json:"pending"`
	More    int             `json:"more,omitempty"`
}

// Config is the configuration of a daemon.
type Config struct {
	// Source is the file, Digest that of the values in force; rdmad config check prints that
	// of a file.
	Source string `json:"source"`
	Digest string `json:"digest"`
	// SupervisorDigest is what the supervisor calls the same by, which may be of another release than the core, with other
	// keys: that of its reloads.
	SupervisorDigest string `json:"supervisor_digest,omitempty"`
	// TOML is what is in force, as a file that needs no environment.
	TOML string `json:"toml"`
	// Overrides are the keys that the daemon has from its flags and its environment, whatever
	// the file says; nil if it does not tell them.
	Overrides []config.Override `json:"overrides"`
	// Reload is how the last reload went; nil before the first.
	Reload *Reload `json:"reload,omitempty"`
}
