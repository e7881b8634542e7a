// Package nodelog makes the logs of a node's processes as their configuration asks for them.
package nodelog

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
)

// New makes the log that cfg asks for, on w. process is who writes: "core" or
// "supervisor", say.
func New(cfg *config.Config, w *os.File, process string) *event.Log {
	terminal := event.IsTerminal(w)
	return event.New(w, event.Options{
		Level:   Level(cfg),
		Console: cfg.Log.Format == "console" || cfg.Log.Format == "auto" && terminal,
		Colour:  terminal,
		Process: process,
	})
}

// Level returns the least level that cfg wants to be logged.
func Level(cfg *config.Config) zerolog.Level {
	level, err := zerolog.ParseLevel(cfg.Log.Level)
	if err != nil {
		return zerolog.InfoLevel // config has checked it
	}
	return level
}

// OutliveReader keeps the process from being ended because nobody reads its log any more, until stop is called. What it
// has to say is lost then.
func OutliveReader() (stop func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}
