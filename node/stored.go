package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pnode/checkpoint"
	"pnode/checkpoint/hub"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/node/ingest"
	"pnode/node/ledger"
	"pnode/node/monitor"
	"pnode/node/plain"
	"pnode/node/weights"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/twofold"
)

// ErrRunning says that a node uses the folder.
var ErrRunning = errors.New("the node runs")

// OpenModel opens the weights in a folder, to read them: one in Hugging Face's layout, an
// imported model, or the newest checkpoint of a run: through its node where one runs, and else the newest that is whole in
// the folders of its nodes. Empty is the newest run. The error wraps ErrRunning, config.ErrNoRun (without a
// folder), weights.ErrNoModel or is the reader's.
func OpenModel(ctx context.Context, dir string, log *slog.Logger) (*weights.Model, error) {
	if dir != "" && weights.KindOf(dir) != weights.Nothing {
		return weights.Open(ctx, dir)
	}
	found, err := config.Existing(dir)
	if errors.Is(err, config.ErrNoRun) && dir != "" {
		if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no folder %s: check the spelling. %s", weights.ErrNoModel, dir, howToPull(dir))
		}
		return nil, fmt.Errorf("%w: %s holds neither a run nor a model: name the folder of a run, of a model in Hugging Face's layout (config.json and model.safetensors), or one that `pnode import` made", weights.ErrNoModel, dir)
	}
	if err != nil {
		return nil, err
	}
	if client, err := api.Dial(ctx, found); err == nil {
		m, err := openRunning(ctx, client)
		if err != nil {
			client.Close()
		}
		return m, err
	}
	dirs := config.NodeDirs(found)
	if len(dirs) == 0 || config.Belongs(found) {
		dirs = []string{found}
	}
	return openRun(ctx, dirs, log)
}

// howToPull says how a model of Hugging Face comes here.
func howToPull(name string) string {
	name = strings.TrimPrefix(name, hub.Scheme)
	if !hub.LooksLikeRepo(name) {
		return "`pnode pull hf:ORG/NAME` downloads a model of Hugging Face"
	}
	return fmt.Sprintf("If it is a model of Hugging Face: pnode pull %s%s", hub.Scheme, name)
}

// openModel is OpenModel without a log.
func openModel(ctx context.Context, dir string) (*weights.Model, error) {
	return OpenModel(ctx, dir, slog.New(slog.DiscardHandler))
}

// InitialModel returns the configuration of the model that a run with these settings trains: the
// preset's, or that of the weights that it starts from.
func InitialModel(ctx context.Context, cfg config.Config) (model.Config, error) {
	return ingest.Source{Config: cfg, OpenModel: openModel}.InitialModel(ctx)
}

// openRun opens the stores of a run's nodes together.
func openRun(ctx context.Context, dirs []string, log *slog.Logger) (_ *weights.Model, err error) {
	var shelf weights.Shelf
	defer func() {
		if err != nil {
			err = errors.Join(err, shelf.Close())
		}
	}()
	var spec *plan.RunSpec
	var lost error // of a folder without the specification, which all of a run have
	for _, dir := range dirs {
		run, err := LoadRun(dir)
		switch {
		case errors.Is(err, ErrNoRun): // a node that never got so far
			continue
		case err != nil:
			lost = err
		default:
			spec = &run
		}
		store, err := openStopped(ctx, dir, log)
		if err != nil {
			return nil, err
		}
		shelf = append(shelf, store)
	}
	if len(shelf) == 0 {
		return nil, fmt.Errorf("node: %w in %s: no node there has begun to train; go on with the run with `pnode train --resume`", weights.ErrNoModel, dirs[0])
	}
	if spec == nil {
		return nil, lost
	}
	m, err := weights.OfRun(ctx, shelf, *spec)
	if errors.Is(err, weights.ErrNotWhole) {
		where := "bring the folders of the run's other nodes here"
		if kept, e := loadMembership(dirs[0]); e == nil && len(dirs) == 1 {
			where = kept.wholeElsewhere(dirs[0])
		}
		err = fmt.Errorf("%w; %s", err, where)
	}
	if kept, e := loadMembership(dirs[0]); err == nil && e == nil {
		if older := kept.olderThanFinal(m.Step, dirs[0]); older != "" {
			m.Warnings = append(m.Warnings, older)
		}
	}
	return m, err
}

// olderThanFinal tells people that a step is not the finished model, of which a folder lacks layers, and where that is; empty for the finished
// model, and where none is known.
func (m membership) olderThanFinal(step plan.Step, dir string) string {
	if step >= m.Finished {
		return ""
	}
	return fmt.Sprintf("this is step %d, the newest that is whole here, of a run that was finished at step %d: %s", step, m.Finished, m.wholeElsewhere(dir))
}

// wholeElsewhere tells people where the whole model can be had, of which a folder lacks layers.
func (m membership) wholeElsewhere(dir string) string {
	start, there := "pnode join", "the machine that began the run has"
	own, others := m.owner()
	if own {
		start = "pnode train --resume"
	}
	switch {
	case len(others) > 0:
		there = strings.Join(others, " or ") + ", which keeps it whole, has"
	case own && m.Finished > 0 && len(m.Known) == 0:
		return "no other node was in the run: bring this folder back from a backup, or train again in another one"
	case own && m.Finished > 0:
		return "this is an owner's folder, which lacks what it should keep: bring the folders of the run's other nodes here"
	case own:
		return fmt.Sprintf("this is an owner's folder, which lacks what it should keep: go on here with `%s --dir %s`, which brings it from machines that have it, "+
			"or goes back to a checkpoint that is whole", start, plain.Quote(dir))
	}
	text := fmt.Sprintf("%s the model: there `pnode export OUT`", there)
	if m.Finished == 0 {
		text += fmt.Sprintf("; or go on here with `%s --dir %s`, and then `pnode fetch --dir %[2]s` brings it", start, plain.Quote(dir))
	}
	return text
}

// openStopped opens the store of a node that must not run.
func openStopped(ctx context.Context, dir string, log *slog.Logger) (*checkpoint.Store, error) {
	if client, err := api.Dial(ctx, dir); err == nil {
		defer client.Close()
		return nil, fmt.Errorf("%w in %s (pid %d) and uses its checkpoints: stop it with Ctrl-C or `pnode leave --dir %s`, then go on with it by `%s`",
			ErrRunning, dir, client.PID(), plain.Quote(dir), StartAgain(dir))
	}
	store, err := openStore(dir, log, true)
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, fmt.Errorf("%w, or another command works on its checkpoints, in %s: wait until it has ended: %w", ErrRunning, dir, err)
	}
	return store, err
}

// OpenStore opens the store of a node that does not run, to look at it: nothing is written.
func OpenStore(dir string, log *slog.Logger) (*checkpoint.Store, error) {
	return openStore(dir, log, true)
}

// folderFile is a file of a node's folder that is kept twice.
type folderFile struct {
	name   string
	needed bool
	check  func(data []byte) error
	remedy string // where both copies are damaged
}

// folderFiles returns the files of a folder beside its store that Verify compares and a start mends.
func folderFiles(dir string) []folderFile {
	filled := func([]byte) error { return nil } // the node makes these again
	const anew = "enter the run anew with `pnode join INVITE` and another folder for --dir"
	return []folderFile{
		{admission.IdentityFile, true, admission.CheckKey, "bring it back from a backup, or " + anew},
		{admission.OwnerFile, false, admission.CheckKey, "bring it back from a backup: nobody else has the owner's key, without which this node makes no invites"},
		{config.MembershipFile, true, func(data []byte) error { _, err := parseMembership(data); return err }, "bring it back from a backup, or " + anew},
		{runFile, hasTrained(dir), func(data []byte) error { return strict.Decode(data, new(plan.RunSpec)) }, runRemedy},
		{epochFile, false, filled, "the node writes it again at its next start, by this machine's clock"},
		{monitor.LossesFile, false, filled, "the node asks the others for the curve when it runs"},
	}
}

// mendFiles writes each damaged copy of a folder's files anew from the other one. On a full disk the next start tries again.
func mendFiles(dir string, log *slog.Logger) {
	for _, f := range folderFiles(dir) {
		if err := twofold.Mend(dir, f.name, maxRunBytes, f.check); err != nil {
			log.Warn("a damaged file of the folder has a copy that is whole, from which it is not made again", "file", f.name, "cause", err)
		}
	}
}

// VerifyFiles compares the files of a stopped node's folder beside its store with their checksums, and changes nothing. It returns the
// names of these files, and for each one that is damaged its path, what is wrong with it, and what helps.
func VerifyFiles(dir string) (compared, damaged []string) {
	for _, f := range folderFiles(dir) {
		wrong, err := twofold.Verify(dir, f.name, maxRunBytes, f.check)
		if err == nil || f.needed {
			compared = append(compared, f.name)
		}
		if err != nil && f.needed {
			damaged = append(damaged, fmt.Sprintf("%s: it is missing, and so is its copy: %s", filepath.Join(dir, f.name), f.remedy))
		}
		for _, d := range wrong {
			remedy := f.remedy
			if d.Copied {
				remedy = "the other copy is whole, and the node writes this one again when it starts"
			}
			damaged = append(damaged, fmt.Sprintf("%s: %v: %s", d.Path, d.Err, remedy))
		}
	}
	switch c, err := ledger.Read(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		compared, damaged = append(compared, ledger.FileName), append(damaged, err.Error())
	default:
		if compared = append(compared, ledger.FileName); c.DamagedBytes > 0 {
			damaged = append(damaged, fmt.Sprintf("%s: %d bytes are no records: the node goes on without them; `pnode audit` with the folders of other nodes proves the steps that were in them",
				filepath.Join(dir, ledger.FileName), c.DamagedBytes))
		}
	}
	return compared, damaged
}

// StoredCheckpoints lists the checkpoints in the folder of a node that does not run.
func StoredCheckpoints(dir string, log *slog.Logger) (api.CheckpointList, error) {
	m, err := loadMembership(dir)
	if err != nil {
		return api.CheckpointList{}, err
	}
	store, err := openStore(dir, log, true)
	if err != nil {
		return api.CheckpointList{}, err
	}
	list, err := checkpointer.List(store, m.nameOf)
	return list, errors.Join(err, store.Close())
}

// openStore opens the store of a node that does not run. Only those who read it alone share it.
func openStore(dir string, log *slog.Logger, reading bool) (*checkpoint.Store, error) {
	if _, err := loadMembership(dir); err != nil {
		return nil, err
	}
	o := opening{cfg: config.Config{Dir: dir}, returning: true, reading: reading}
	err := o.prepare(log)
	return o.store, err
}

// AwaitRelease waits until no process works in a node's folder any more.
func AwaitRelease(ctx context.Context, dir string) error {
	return checkpoint.AwaitRelease(ctx, storeDir(dir))
}

const (
	// runFile is in a node's folder from its first arrival on: the run's specification, for
	// those who look at the folder. The node itself goes by the log.
	runFile = "run.json"
	// runRemedy is what helps where both copies of it are damaged or missing. All machines of a run have the same.
	runRemedy = "start the node, which writes it again from the log of the run, or bring it here from another machine of the run"
	// maxRunBytes is well over what the log takes, indented.
	maxRunBytes = 16 << 20
)

// hasTrained reports whether a node in a folder has had a plan, before which run.json is there.
func hasTrained(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ledger.FileName))
	return err == nil
}

// lostRun says for people that a node which comes back to a folder finds no specification of the run there, of which neither copy can be
// read; empty where it does, or where it has never trained.
func lostRun(dir string) string {
	if _, err := LoadRun(dir); err == nil || errors.Is(err, ErrNoRun) {
		return ""
	}
	return fmt.Sprintf("neither %s nor its copy can be read: it is written again from the log of the run", filepath.Join(dir, runFile))
}

// saveRun writes the specification of the run as the log has it, whatever the folder has.
func saveRun(dir string, run plan.RunSpec) error {
	if err := saveJSON(dir, runFile, run); err != nil {
		return fmt.Errorf("node: save the run's specification: %w", err)
	}
	return nil
}

// LoadRun reads the specification of the run that a folder belongs to, whether its node
// runs or not. The error wraps ErrNoRun when no node has come so far there.
func LoadRun(dir string) (plan.RunSpec, error) {
	run, err := twofold.Read(dir, runFile, maxRunBytes, func(data []byte) (run plan.RunSpec, err error) {
		err = strict.Decode(data, &run)
		return run, err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if hasTrained(dir) {
			return run, fmt.Errorf("node: %s is missing, and so is its copy; %s", filepath.Join(dir, runFile), runRemedy)
		}
		return run, fmt.Errorf("%w: %s has no %s: it is there once a node has begun to train", ErrNoRun, dir, runFile)
	case errors.Is(err, twofold.ErrDamaged):
		return run, fmt.Errorf("node: %w; %s", err, runRemedy)
	case err != nil:
		return run, fmt.Errorf("node: read the run's specification: %w", err)
	}
	return run, nil
}

// OpenSampler returns which samples the steps of the run of a folder train on. It needs none of
// the run's text.
func OpenSampler(dir string) (*dataset.Sampler, error) {
	run, err := LoadRun(dir)
	if err != nil {
		return nil, err
	}
	return ingest.NewSampler(run)
}

// WithText calls use with the run's text, as the store in the folder of a stopped node has it.
func WithText(dir string, use func(pipeline.Data) error) (err error) {
	run, err := LoadRun(dir)
	if err != nil {
		return err
	}
	store, err := OpenStore(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	data, err := ingest.OpenStored(storedChunks{store}, run)
	if err != nil {
		return err
	}
	return use(data)
}

// storeDir returns the checkpoint store's folder within a node's folder.
func storeDir(dir string) string { return filepath.Join(dir, "store") }

// StoredState returns the names of all chunks of the state after a step, by layer, from the store of a stopped node.
func StoredState(dir string, step plan.Step) (layers map[int][]plan.Hash, err error) {
	store, err := OpenStore(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	m, err := store.Manifest(step)
	if err != nil {
		return nil, err
	}
	layers = map[int][]plan.Hash{}
	for _, l := range m.Layers {
		layers[l.Layer] = l.Chunks
	}
	return layers, nil
}

// ErrNoLedger says that a folder has no record of what was computed there.
var ErrNoLedger = errors.New("node: no ledger")

// ErrSameFolder says that a folder was named twice.
var ErrSameFolder = errors.New("node: one folder counts as one node")

// Audit compares the ledgers in the folders of a run's nodes, which may run. A folder of several local nodes stands
// for all of them. The report says what is wrong; an error that there is nothing to report on.
func Audit(dirs []string) (ledger.Report, error) {
	var nodes []ledger.Node
	var size ledger.Size
	var lost error // of a folder without the specification, which all of a run have
	var seen []os.FileInfo
	for _, named := range dirs {
		each := config.NodeDirs(named)
		if len(each) == 0 || config.Belongs(named) {
			each = []string{named}
		}
		for _, dir := range each {
			folder, err := os.Stat(dir)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return ledger.Report{}, fmt.Errorf("%w in %s: there is no such folder; name the folders of the run's nodes that are there", ErrNoLedger, dir)
			case err != nil:
				return ledger.Report{}, fmt.Errorf("node: audit: %w", err)
			case !folder.IsDir():
				return ledger.Report{}, fmt.Errorf("%w: %s is a file: name the folder of a node", ErrNoLedger, dir)
			}
			if i := slices.IndexFunc(seen, func(other os.FileInfo) bool { return os.SameFile(other, folder) }); i >= 0 {
				return ledger.Report{}, fmt.Errorf("%w: %s is the folder %s again: name each node's folder once", ErrSameFolder, dir, nodes[i].Dir)
			}
			seen = append(seen, folder)
			n, err := readLedger(dir)
			if err != nil {
				return ledger.Report{}, err
			}
			nodes = append(nodes, n)
			if run, err := LoadRun(dir); err == nil {
				size = ledger.SizeOf(run)
			} else if !errors.Is(err, ErrNoRun) {
				lost = err
			}
		}
	}
	if !slices.ContainsFunc(nodes, func(n ledger.Node) bool { return n.Head.Run != "" || n.Reached != ledger.Reached{} }) {
		return ledger.Report{}, fmt.Errorf("%w in %s: it is there once a node has learned its first plan; name the folders of the run's nodes", ErrNoLedger, strings.Join(dirs, ", "))
	}
	if size == (ledger.Size{}) && lost != nil {
		return ledger.Report{}, lost
	}
	if size == (ledger.Size{}) {
		return ledger.Report{}, fmt.Errorf("%w: none of the folders has %s: it is there once a node has begun to train", ErrNoRun, runFile)
	}
	report := ledger.Audit(size, nodes)
	for i, n := range report.Nodes {
		if n.Short { // its node may run, and have gone on while the others' were read
			var err error
			if nodes[i].Contents, err = readContents(n.Dir); err != nil {
				return ledger.Report{}, err
			}
		}
	}
	return ledger.Audit(size, nodes), nil
}

// readLedger reads the ledger in a node's folder, and before it how far the run came by what else is there.
func readLedger(dir string) (n ledger.Node, err error) {
	n.Dir = dir
	if m, err := checkpoint.Newest(storeDir(dir)); err == nil {
		n.Reached.Saved = ledger.Position{Generation: m.Generation, Step: m.Step}
	} else if !errors.Is(err, checkpoint.ErrNotFound) {
		return n, err
	}
	if m, err := loadMembership(dir); err == nil {
		n.Reached.Finished = m.Finished
	} // without it the folder can be audited all the same
	n.Contents, err = readContents(dir)
	return n, err
}

// readContents reads the ledger in a node's folder, an empty one where there is none: its node never got so far, or it is gone.
func readContents(dir string) (ledger.Contents, error) {
	c, err := ledger.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	return c, err
}
