package daemon

import (
	"os"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
)

// NewLog makes the log that cfg asks for, on w. process is who writes: "core" or
// "supervisor".
func NewLog(cfg *config.Config, w *os.File, process string) *event.Log {
	terminal := event.IsTerminal(w)
	return event.New(w, event.Options{
		Level:   logLevel(cfg),
		Console: cfg.Log.Format == "console" || cfg.Log.Format == "auto" && terminal,
		Colour:  terminal,
		Process: process,
	})
}

// logLevel returns the least level that cfg wants to be logged.
func logLevel(cfg *config.Config) zerolog.Level {
	level, err := zerolog.ParseLevel(cfg.Log.Level)
	if err != nil {
		return zerolog.InfoLevel // config has checked it
	}
	return level
}
