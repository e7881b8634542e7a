package webpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var files embed.FS

// asset is a file of the page.
type asset struct {
	content     []byte
	contentType string
	etag        string
}

// contentTypes are those of the files, by extension: what the machine thinks of an
// extension does not matter.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// assets are all files by name, and edition is a hash of them: a page that was loaded
// from another edition loads itself anew.
var assets, edition = readAssets()

// readAssets reads what is embedded, which cannot fail for lack of anything: a mistake
// here would show in every test.
func readAssets() (map[string]asset, string) {
	entries, err := files.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	all, found := sha256.New(), map[string]asset{}
	for _, e := range entries {
		content, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		all.Write(sum[:])
		found[e.Name()] = asset{content, contentTypes[path.Ext(e.Name())], `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return found, hex.EncodeToString(all.Sum(nil)[:8])
}

// serveAsset answers with a file. Browsers keep it but ask each time whether it has
// changed, as it does when the daemon is replaced by another.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := assets[name]
	if !ok {
		http.Error(w, "nothing is here; there are /, /metrics, /healthz, /readyz, /statusz and, where they are allowed, /debug/pprof/", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
}
