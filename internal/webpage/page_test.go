package webpage

import (
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	_, s := open(t, &counting{}, Options{})
	names := map[string]string{"": "text/html; charset=utf-8"}
	for name, a := range assets {
		if a.contentType == "" {
			t.Errorf("%s: no content type for %s", name, path.Ext(name))
		}
		names[name] = a.contentType
	}
	for name, want := range names {
		a := get(t, s.URL+"/"+name)
		h := a.Header
		if a.StatusCode != http.StatusOK || h.Get("Content-Type") != want || h.Get("Cache-Control") != "no-cache" || h.Get("ETag") == "" {
			t.Errorf("%q: status %d, %v", name, a.StatusCode, h)
		}
		again := get(t, s.URL+"/"+name, "If-None-Match", h.Get("ETag"))
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%q: status %d for a browser that has it", name, again.StatusCode)
		}
	}
}

// Whatever is answered, no browser may make more of it than it is.
func TestHeaders(t *testing.T) {
	_, s := open(t, &counting{}, Options{})
	for _, name := range []string{"/", "/main.js", "/events", "/nothing"} {
		h := get(t, s.URL+name).Header
		for key, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; ", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if !strings.HasPrefix(h.Get(key), want) {
				t.Errorf("%s: %s is %q", name, key, h.Get(key))
			}
		}
		if policy := h.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
			t.Errorf("%s: the policy allows too much: %s", name, policy)
		}
	}
}

func TestRefusals(t *testing.T) {
	_, s := open(t, &counting{}, Options{})
	for _, name := range []string{"/nothing", "/assets/main.js", "/..%2fpage.go", "/assets", "/index.html/"} {
		if a := get(t, s.URL+name); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", name, a.StatusCode)
		}
	}
	for _, name := range []string{"/", "/events"} {
		a, err := http.Post(s.URL+name, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != http.StatusMethodNotAllowed || a.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: status %d, Allow %q", name, a.StatusCode, a.Header.Get("Allow"))
		}
	}
}

var (
	// reference is how files of the page name others.
	reference = regexp.MustCompile(`(?:href|src)="([^"#][^"]*)"|(?m:^import .* from "([^"]+)")|new Stream\("([^"]+)"`)
	// forbidden is what would make HTML or code of text, or ask somebody else.
	forbidden = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\beval\(|new Function|\bstyle="|<script>|<style|\bon[a-z]+="|https?://|url\(|@import|@font-face`)
	// space is the name of SVG, which is no address.
	space = "http://www.w3.org/2000/svg"
)

// The page needs nothing but its own files, refers to them by relative addresses, and
// has nothing in it that makes HTML of text.
func TestPageIsSelfContained(t *testing.T) {
	for name, a := range assets {
		text := strings.ReplaceAll(string(a.content), space, "")
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			to := strings.TrimPrefix(m[1]+m[2]+m[3], "./")
			if _, ok := assets[to]; !ok && to != "events" {
				t.Errorf("%s refers to %q, which there is not", name, to)
			}
		}
	}
}

// The page can be mounted anywhere.
func TestMounted(t *testing.T) {
	p, _ := open(t, &counting{}, Options{})
	mux := http.NewServeMux()
	mux.Handle("/ui/", http.StripPrefix("/ui", p))
	s := newServer(t, mux)
	for _, name := range []string{"/ui/", "/ui/main.js"} {
		a := get(t, s.URL+name)
		if text, err := io.ReadAll(a.Body); err != nil || a.StatusCode != http.StatusOK || len(text) == 0 {
			t.Errorf("%s: status %d, %v", name, a.StatusCode, err)
		}
	}
	watch(t, s.URL+"/ui").next()
}
