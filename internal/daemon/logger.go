package daemon

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
)

// NewLogger makes the logger that cfg asks for, on w.
func NewLogger(cfg *config.Config, w *os.File) zerolog.Logger {
	level, err := zerolog.ParseLevel(cfg.Log.Level)
	if err != nil {
		level = zerolog.InfoLevel // config has checked it
	}
	var out io.Writer = w
	if cfg.Log.Format == "console" || cfg.Log.Format == "auto" && terminal(w) {
		out = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !terminal(w)}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}

func terminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
