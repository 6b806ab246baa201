package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"exacta.dev/exacta/engine/registry"
)

// provenance collects what is needed to say later what a run was. Rules that are
// lossy are named, and so is where packed weights came from (Packing).
func provenance(s *session, version string) map[string]string {
	info := s.be.Info()
	p := origin(version, configHash(s.cfg), s.entry)
	p["backend"], p["device"], p["kernels"] = info.Name, info.Device, info.Kernels
	p["threads"], p["arithmetic"] = fmt.Sprint(info.Threads), info.Arithmetic
	if packed := s.packing.String(); packed != "" {
		p["packed_weights"] = packed
	}
	if rules := s.cfg.lossy(); len(rules) > 0 {
		p["lossy"] = strings.Join(rules, "; ")
	}
	return p
}

// origin is the part of a provenance that every kind of run has: the build, the
// configuration's hash, the machine, the model if there is one, and the time.
func origin(version, config string, entry *registry.Entry) map[string]string {
	host, _ := os.Hostname()
	p := map[string]string{
		"version":  version,
		"revision": revision(),
		"config":   config,
		"go":       runtime.Version(),
		"platform": runtime.GOOS + "/" + runtime.GOARCH,
		"host":     host,
		"cores":    fmt.Sprint(runtime.NumCPU()),
		"started":  time.Now().UTC().Format(time.RFC3339),
	}
	if entry != nil {
		p["model"], p["model_hash"] = entry.Name, entry.Hash
	}
	return p
}

// revision is the source revision that the binary was built from, with a plus
// where the tree had changes, or "unknown" where the build did not record it.
func revision() string {
	rev, changed := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				rev = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = "+"
			}
		}
	}
	return rev + changed
}

// configHash is the SHA-256 of the configuration as config.yaml has it.
func configHash(cfg Config) string {
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return "unknown"
	}
	return textHash(text)
}

// textHash is the SHA-256 of a text, in hexadecimal digits.
func textHash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
