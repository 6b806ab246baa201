package experiments

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// provenance collects what is needed to say later what a run was.
func provenance(s *session, version string) map[string]string {
	info := s.be.Info()
	host, _ := os.Hostname()
	return map[string]string{
		"version":    version,
		"go":         runtime.Version(),
		"platform":   runtime.GOOS + "/" + runtime.GOARCH,
		"host":       host,
		"cores":      fmt.Sprint(runtime.NumCPU()),
		"backend":    info.Name,
		"device":     info.Device,
		"kernels":    info.Kernels,
		"threads":    fmt.Sprint(info.Threads),
		"arithmetic": info.Arithmetic,
		"model":      s.entry.Name,
		"model_hash": s.entry.Hash,
		"started":    time.Now().UTC().Format(time.RFC3339),
	}
}
