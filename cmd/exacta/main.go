package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"exacta.dev/exacta/experiments"
)

// Exit codes.
const (
	exitFine        = 0
	exitFalse       = 1
	exitBad         = 2
	exitInterrupted = 130
)

// errFalse says that the thing checked is false; what was found has been
// printed.
var errFalse = errors.New("the thing checked is false")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second one ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, errFalse):
		return exitFalse
	case errors.Is(err, experiments.ErrInterrupted), errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "exacta:", oneLine(err))
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "exacta:", oneLine(err))
	return exitBad
}

// oneLine is the text of an error on one line: joined errors come on lines of
// their own.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// options are flags that every command has.
type options struct {
	json bool
}

func newRoot() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "exacta",
		Short: "speculative decoding that is proved: experiments, audits and measurements",
		Long: `exacta runs speculative decoding on its own BF16 engine, logs every step, and
proves that the output equals plain decoding bit for bit.`,
		Example: `  exacta run
  exacta generate --draft mtp --k 3 "func Reverse(s string) string {"
  exacta audit runs/quickstart-20260101-120000 --only tokens`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().BoolVar(&o.json, "json", false, "print the result as JSON")
	root.AddCommand(
		newRunCommand(o), newGenerateCommand(o), newScoreCommand(o), newStatsCommand(o), newAuditCommand(o), newReportCommand(o), newExportCommand(o),
		newModelsCommand(o), newInspectCommand(o), newPullCommand(o), newDraftersCommand(o), newRulesCommand(o), newBenchCommand(o), newQuantizeCommand(o), newHiddenCommand(o), newFaultsCommand(o), newServeCommand(o), newVersionCommand(o),
	)
	return root
}

// printJSON writes v indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
