package top

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/rdmad/rdmad/internal/status"
)

// Screen shows the picture on a terminal until somebody quits, ctx ends or it has looked
// often enough. The first look must succeed. in and out are the terminal.
func Screen(ctx context.Context, in io.Reader, out io.Writer, source *Source, o Options) error {
	defer source.Close()
	m := &model{ctx: ctx, source: source, options: o, view: newView(80, 24)}
	m.view.filter = o.Filter
	m.view.sortBy(o.Sort)
	s, err := source.Look(ctx)
	if s == nil {
		return err
	}
	m.take(looked{s, err, time.Now()})
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // an interrupt is how people leave it
	}
	return err
}

// model is the program of the terminal: what is shown, and what is done about keys. All
// its methods run on bubbletea's goroutine, but for the source, which one command at a
// time uses.
type model struct {
	ctx     context.Context
	source  *Source
	options Options
	view    *view
	picture Picture
	looks   int
	// looking: a look is under way, or its time is awaited.
	looking bool
}

// looked is the outcome of a look.
type looked struct {
	status *status.Node
	err    error
	at     time.Time
}

// due says that it is time for the next look.
type due struct{}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.wait() }

// wait lets the next look be due after the interval.
func (m *model) wait() tea.Cmd {
	m.looking = true
	return tea.Tick(m.options.Interval, func(time.Time) tea.Msg { return due{} })
}

// look asks the daemon.
func (m *model) look() tea.Msg {
	s, err := m.source.Look(m.ctx)
	return looked{s, err, time.Now()}
}

func (m *model) take(l looked) {
	m.picture.take(l.status, l.err, l.at)
	m.looks++
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.width, m.view.height = msg.Width, msg.Height
	case due:
		if m.view.paused {
			m.looking = false
			return m, nil
		}
		return m, m.look
	case looked:
		m.take(msg)
		if m.looks == m.options.Count {
			return m, tea.Quit
		}
		return m, m.wait()
	case tea.KeyPressMsg:
		return m, m.key(msg.String(), msg.Text)
	}
	return m, nil
}

// The bounds of the interval that keys change.
const (
	shortest = 100 * time.Millisecond
	longest  = time.Minute
)

// key does what a key is for. text is what it would write.
func (m *model) key(key, text string) tea.Cmd {
	v := m.view
	if key == "ctrl+c" {
		return tea.Quit
	}
	if v.typing {
		v.write(key, text)
		return nil
	}
	switch key {
	case "q":
		return tea.Quit
	case "?", "h":
		v.help = !v.help
	case "esc":
		v.help, v.filter = false, ""
	case "/":
		v.typing, v.help = true, false
	case "p", "space":
		if v.paused = !v.paused; !v.paused && !m.looking {
			m.looking = true
			return m.look
		}
	case "+":
		m.options.Interval = max(m.options.Interval/2, shortest)
	case "-":
		m.options.Interval = max(m.options.Interval, min(m.options.Interval*2, longest))
	default:
		v.move(key)
	}
	return nil
}

// write adds a key to the filter.
func (v *view) write(key, text string) {
	switch key {
	case "enter":
		v.typing = false
	case "esc":
		v.typing, v.filter = false, ""
	case "backspace":
		r := []rune(v.filter)
		v.filter = string(r[:max(len(r)-1, 0)])
	default:
		if len(v.filter) < 60 {
			v.filter += text
		}
	}
}

// move chooses what is shown, in which order, and from where on.
func (v *view) move(key string) {
	tabs := len(sections) + 1
	page := max(v.height-6, 1)
	switch key {
	case "tab", "right", "l":
		v.tab, v.scroll = (v.tab+1)%tabs, 0
	case "shift+tab", "left":
		v.tab, v.scroll = (v.tab+tabs-1)%tabs, 0
	case "0", "1", "2", "3", "4", "5":
		v.tab, v.scroll = int(key[0]-'0'), 0
	case "s":
		v.sortNext(1)
	case "S":
		v.sortNext(-1)
	case "r":
		v.reverse = !v.reverse
	case "down", "j":
		v.scroll++
	case "up", "k":
		v.scroll = max(v.scroll-1, 0)
	case "pgdown":
		v.scroll += page
	case "pgup":
		v.scroll = max(v.scroll-page, 0)
	case "home", "g":
		v.scroll = 0
	case "end", "G":
		v.scroll = 1 << 20 // one bounds it
	}
}

// sortNext sorts the section that is shown by the next column, or none after the last. In
// the view of all there is no such section: lanes are sorted.
func (v *view) sortNext(step int) {
	i := max(v.tab-1, 0)
	if v.tab == 0 {
		i = 1
	}
	n := len(sections[i].head) + 1
	v.sorted[i] = (v.sorted[i]+1+step+n)%n - 1
}

// ansi begins each style; bubbletea leaves colours out where NO_COLOR says so.
var ansi = [...]string{title: "\x1b[1m", heading: "\x1b[7m", warning: "\x1b[1;31m", hint: "\x1b[2m"}

// View implements tea.Model.
func (m *model) View() tea.View {
	ls := m.view.screen(&m.picture, m.options.Interval)
	var b strings.Builder
	for i, l := range ls {
		if i > 0 {
			b.WriteByte('\n')
		}
		if l.style == plain || l.text == "" {
			b.WriteString(l.text)
			continue
		}
		b.WriteString(ansi[l.style] + l.text + "\x1b[m")
	}
	view := tea.NewView(b.String())
	view.AltScreen = true
	return view
}
