package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/kernels/cpu/vec"
)

func newVersionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print version, toolchain and what this machine offers", Args: cobra.NoArgs,
		Example: "  exacta version --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := map[string]any{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "cores": runtime.NumCPU()}
			var sets []string
			for _, s := range vec.Sets() {
				sets = append(sets, s.Name)
			}
			v["kernel_sets"] = sets
			if o.json {
				return printJSON(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "exacta %s (%s, %s, %d cores, kernel sets %v)\n", v["version"], v["go"], v["platform"], v["cores"], sets)
			return err
		},
	}
}

// version is the module version, or the revision the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if rev != "" {
		return rev[:min(12, len(rev))] + dirty
	}
	return info.Main.Version
}
