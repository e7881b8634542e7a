package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Options say how a Log writes.
type Options struct {
	// Level is the least level that is written.
	Level zerolog.Level
	// Console asks for lines for people; otherwise they are JSON. Colour is for terminals.
	Console, Colour bool
	// Process is who writes: "core" or "supervisor".
	Process string
}

// form returns a writer to w of lines as the options ask for.
func (o Options) form(w io.Writer) io.Writer {
	if !o.Console {
		return w
	}
	return zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly, NoColor: !o.Colour}
}

// Log is the log of a process. Every line of the levels warn and error is counted in its
// ring, whatever is written: not those below the level, and of those of one code no more
// than a few in a second. Its methods are safe for concurrent use; those of a nil Log do
// nothing.
type Log struct {
	out     io.Writer
	form    func(io.Writer) io.Writer // makes a writer of lines in the log's form
	patient *patientWriter            // nil if w has no reader to wait for
	process string
	level   atomic.Int32
	ring    Ring
	limit   limiter
	changed chan struct{}
	now     func() time.Time
}

// New makes a log that writes to w. Lines are written with one call each. A file that nobody reads from, such as a full
// pipe or a terminal, is not waited for: lines are lost then, and the next one that is written says how many.
func New(w io.Writer, o Options) *Log {
	l := &Log{form: o.form, process: o.Process, changed: make(chan struct{}, 1), now: time.Now}
	if f, ok := w.(*os.File); ok {
		if l.patient = newPatientWriter(f); l.patient != nil {
			w = l.patient
		}
	}
	l.out = l.form(w)
	l.level.Store(int32(o.Level))
	return l
}

// Flush waits for a moment until everything is written. Whoever ends the process calls it; nothing is lost without it but what
// was said while the reader was slow.
func (l *Log) Flush() {
	if l != nil {
		l.patient.flush()
	}
}

// IsTerminal reports whether a file is a terminal or the like.
func IsTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// Logger returns the logger of the log. Its level can be changed while it is in use.
func (l *Log) Logger() zerolog.Logger {
	if l == nil {
		return zerolog.Nop()
	}
	return zerolog.New(l).Sample(levels{l}).With().Timestamp().Logger()
}

// SetLevel changes the least level that is written, for all loggers of the log.
func (l *Log) SetLevel(level zerolog.Level) {
	if l != nil {
		l.level.Store(int32(level))
	}
}

// Errors returns the distinct errors, the latest first.
func (l *Log) Errors() []Entry {
	if l == nil {
		return nil
	}
	return l.ring.List()
}

// Restore puts back errors that an earlier process has counted.
func (l *Log) Restore(list []Entry) {
	if l == nil {
		return
	}
	for _, e := range list {
		l.ring.Note(e)
	}
}

// Changed receives after errors were counted: at least once after the last of them.
func (l *Log) Changed() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.changed
}

// levels keeps lines from being made that nobody would see. Those that are counted are
// made in any case.
type levels struct{ log *Log }

// Sample implements zerolog.Sampler.
func (s levels) Sample(level zerolog.Level) bool {
	return level >= zerolog.WarnLevel || int32(level) >= s.log.level.Load()
}

// Write implements io.Writer for lines without a level.
func (l *Log) Write(line []byte) (int, error) { return l.out.Write(line) }

// WriteLevel implements zerolog.LevelWriter.
func (l *Log) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	n := len(line)
	if level >= zerolog.WarnLevel && level != zerolog.NoLevel {
		e := l.entry(level, line)
		l.ring.Note(e)
		select {
		case l.changed <- struct{}{}:
		default:
		}
		suppressed, ok := l.limit.allow(e.Code, e.Last)
		if !ok {
			return n, nil
		}
		if suppressed > 0 {
			line = with(line, "suppressed", suppressed)
		}
	}
	if int32(level) < l.level.Load() {
		return n, nil
	}
	out := l.out
	if lost := l.patient.lostLines(); lost > 0 {
		line, out = with(line, "lost", lost), l.form(saying{l.patient, lost})
	}
	if _, err := out.Write(line); err != nil {
		return 0, err
	}
	return n, nil
}

// with returns a line with one more field. It is an object and has a level, so there is something before the brace.
func with(line []byte, field string, n uint64) []byte {
	open := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("}"))
	return fmt.Appendf(nil, "%s,%q:%d}\n", open, field, n)
}

// said is what is looked for in a line.
type said struct {
	Code     Code            `json:"code"`
	Peer     string          `json:"peer"`
	From     string          `json:"from"`
	Name     string          `json:"name"`
	Worker   json.RawMessage `json:"worker"`
	Domain   string          `json:"domain"`
	Provider string          `json:"provider"`
	Device   string          `json:"device"`
	Agent    string          `json:"agent"`
	Message  string          `json:"message"`
	Error    json.RawMessage `json:"error"`
}

// entry makes the entry of a line.
func (l *Log) entry(level zerolog.Level, line []byte) Entry {
	now := l.now()
	e := Entry{Level: level.String(), Count: 1, First: now, Last: now, Process: l.process}
	var s said
	if err := json.Unmarshal(line, &s); err != nil {
		e.Text = string(line)
		return e
	}
	e.Code, e.Subject, e.Text = s.Code, s.subject(), s.Message
	var why string
	if json.Unmarshal(s.Error, &why) == nil && why != "" {
		e.Text += ": " + why
	}
	return e
}

// subject says what a line is about.
func (s *said) subject() string {
	switch {
	case s.Peer != "":
		return "peer " + s.Peer
	case s.From != "":
		if host, _, err := net.SplitHostPort(s.From); err == nil {
			return "host " + host
		}
		return "host " + s.From
	case s.Name != "":
		return "worker " + s.Name
	case len(s.Worker) > 0:
		return "worker " + string(s.Worker)
	case s.Domain != "":
		return "domain " + s.Domain
	case s.Provider != "":
		return "fabric " + s.Provider
	case s.Device != "":
		return "device " + s.Device
	case s.Agent != "":
		return s.Agent
	}
	return ""
}
