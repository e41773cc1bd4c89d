package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"pnode/checkpoint"
	"pnode/checkpoint/hub"
	"pnode/checkpoint/huggingface"
	"pnode/kernels/devices"
	"pnode/node"
	"pnode/node/api"
	"pnode/node/bench"
	"pnode/node/chaos"
	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/node/dataset/corpus"
	"pnode/node/dataset/files"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/source"
	"pnode/node/dataset/tokenizer"
	"pnode/node/infer"
	"pnode/node/inventory"
	"pnode/node/local"
	"pnode/node/plain"
	"pnode/node/weights"
	"pnode/pipeline/schedule/study"
	"pnode/pipeline/trace"
	"pnode/planner/simulate"
)

// Exit codes; exitCodesTopic documents them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitFinished    = local.ExitFinished
	exitNotHanded   = 5
	exitInterrupted = 130
)

// exitCodes maps errors to exit codes; the first match counts, exitFailure is for the rest.
var exitCodes = []struct {
	err  error
	code int
}{
	{node.ErrUnreachable, exitUnreachable}, // before what made it so
	{node.ErrRefused, exitUnreachable},
	{node.ErrBadInvite, exitUsage},
	{node.ErrSeveralRuns, exitUsage},
	{node.ErrOtherRun, exitUsage},
	{node.ErrFinished, exitFinished},
	{node.ErrNotHandedOver, exitNotHanded},
	{config.ErrInvalid, exitUsage},
	{config.ErrDirTaken, exitUsage},
	{config.ErrNoRun, exitUsage}, // what a command needs and is not there
	{inventory.ErrSeveral, exitUsage},
	{node.ErrNoLedger, exitUsage},
	{node.ErrSameFolder, exitUsage},
	{node.ErrNoRun, exitUsage},
	{weights.ErrNoModel, exitUsage},
	{devices.ErrUnknown, exitUsage},
	{study.ErrBadRequest, exitUsage},
	{files.ErrMissing, exitUsage}, // before what is asked for in a folder that is not there
	{files.ErrNone, exitUsage},
	{files.ErrNotRegular, exitUsage},
	{infer.ErrWindow, exitUsage},
	{bench.ErrOptions, exitUsage},
	{chaos.ErrOptions, exitUsage},
	{corpus.ErrNoText, exitUsage},
	{corpus.ErrNotText, exitUsage},
	{source.ErrNoColumn, exitUsage},
	{dataset.ErrTooShort, exitUsage},
	{dataset.ErrTooLarge, exitUsage},
	{tokenizer.ErrFormat, exitUsage},
	{trace.ErrBadTrace, exitUsage},
	{simulate.ErrTrace, exitUsage},
	{simulate.ErrOptions, exitUsage},
	{weights.ErrNoAdapter, exitUsage},
	{hub.ErrBadRef, exitUsage},
	{hub.ErrSettings, exitUsage},
	{hub.ErrNotFound, exitUsage},
	{hub.ErrNoWeights, exitUsage},
	{huggingface.ErrFormat, exitUsage},
	{huggingface.ErrUnsupported, exitUsage},
	{errBegun, exitFailure},
	{fs.ErrPermission, exitUsage}, // a file or folder that is named cannot be read, or not be written to
	{syscall.ENOTDIR, exitUsage},  // a file stands where a folder has to be
	{checkpoint.ErrOccupied, exitUsage},
	{shard.ErrExists, exitUsage},
	{shard.ErrUnfinished, exitUsage},
	{shard.ErrOptions, exitUsage},
	{shard.ErrNoEndOfText, exitUsage},
	{api.ErrNoNode, exitUnreachable},
	{api.ErrUnreachable, exitUnreachable},
	{api.ErrRefused, exitUnreachable},
	{api.ErrNotReady, exitUnreachable},
}

func exitCode(err error) int {
	if err == nil || solely(err, node.ErrInterrupted) {
		return exitOK
	}
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	if local := (&local.NodeError{}); errors.As(err, &local) && local.Code > 0 {
		return local.Code
	}
	for _, c := range exitCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return exitFailure
}

// errBegun is an error of a node that had begun. What it may not read or write then, of a disk in the network or of a device, it
// could use before: nothing that was asked for is wrong, and a service starts the node again.
var errBegun = errors.New("the node had begun")

// begunError is an error that is errBegun, too, without its words.
type begunError struct{ error }

func (b begunError) Unwrap() []error { return []error{b.error, errBegun} }

// solely reports whether an error is the target and no other one beside it.
func solely(err, target error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) == 1 {
		return solely(joined.Unwrap()[0], target)
	}
	return err == target
}

// usageError marks an error in the command line itself.
type usageError struct {
	command string
	err     error
}

func (u usageError) Error() string { return fmt.Sprintf("%v; see `%s --help`", u.err, u.command) }

func (u usageError) Unwrap() error { return u.err }

// usageArgs makes the errors of an argument check usage errors.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{c.CommandPath(), err}
		}
		return nil
	}
}

// atLeastOne asks for arguments by what they are.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("name at least one %s", what)
		}
		return nil
	}
}

// one asks for one argument by what it is.
func one(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("want one argument, %s: got %d", what, len(args))
		}
		return nil
	}
}

// noArgs refuses arguments.
var noArgs = usageArgs(func(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected %q: this command takes flags alone", args[0])
	}
	return nil
})

// named refuses empty arguments: an unset variable of the shell leaves them.
func named(_ *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return errors.New("an argument is empty: is a variable of the shell not set?")
	}
	return nil
}

// checkFlags refuses what no command takes. Leaving --dir out means the newest run, or a new one, which
// nobody writes as an empty word.
func checkFlags(c *cobra.Command) error {
	if n, err := c.Flags().GetInt("threads"); err == nil && (n < 0 || n > config.MaxThreads) {
		return usageError{c.CommandPath(), fmt.Errorf("--threads is %d: want 0 (all) to %d", n, config.MaxThreads)}
	}
	for _, name := range []string{"dir", "out"} {
		f := c.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		if f.Value.String() == "" {
			return usageError{c.CommandPath(), fmt.Errorf("--%s is empty: name a folder or leave the flag out; is a variable of the shell not set?", name)}
		}
		if st, err := os.Stat(f.Value.String()); err == nil && !st.IsDir() {
			return usageError{c.CommandPath(), fmt.Errorf("--%s is %v, which is a file: name a folder", name, f.Value)}
		}
	}
	return nil
}

// exitCodesTopic is `pnode help exit-codes`.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: fmt.Sprintf(`Exit codes of pnode:

  %3d  done; also a node that was interrupted and gave nothing up: it left a checkpoint, or had not
       begun, or had only stayed for the others
  %3d  it failed; the last line of standard error says why
  %3d  bad input: the command line, or a file, model or invite that it names, cannot be read or
       asks for the impossible; or a run, model or file that the command needs is not there
  %3d  no node answered, or it refused: the invite is expired or used up, or too few
       members of the run are up
  %3d  nothing to do: the run is finished already
  %3d  left the run before the others had all that this node had: in the time that there was, since
       too few voters answer, or interrupted twice in a finished run; the last line of standard
       error says what they go on from, or what helps
  %3d  interrupted twice before the newest state was safe: ended at once; the last line of standard
       error says what is given up, such as steps after the last checkpoint, which are made again`,
			exitOK, exitFailure, exitUsage, exitUnreachable, exitFinished, exitNotHanded, exitInterrupted),
	}
}

// sentence returns an error for people: on one line, each of its lines once, without the names of packages.
func sentence(err error) string {
	if errors.Is(err, context.Canceled) { // where it was does not matter to whoever pressed Ctrl-C
		return "interrupted before it was done"
	}
	var lines []string
	for line := range strings.Lines(plain.Text(err)) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if limit, ok := openFiles(); ok && errors.Is(err, syscall.EMFILE) {
		lines = append(lines, fmt.Sprintf("this process may open %d files at once: raise the limit (`ulimit -n`)", limit))
	}
	text := strings.Join(lines, "; ")
	if remedy := remedyOf(err); remedy != "" && !strings.Contains(text, "; ") && !strings.Contains(text, "disk full") { // else it has one
		text += "; " + remedy
	}
	return text
}

// remedyOf says what helps where the system refuses a file, whatever it is for; it is empty for other errors.
func remedyOf(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "free space on that disk, or name a folder on another one"
	case errors.Is(err, fs.ErrPermission):
		return "give this user the right to it, or name another"
	case errors.Is(err, syscall.EROFS):
		return "name a folder on a disk that can be written to"
	}
	return ""
}
