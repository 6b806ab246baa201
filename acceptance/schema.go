package acceptance

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// SchemaVersion is the version of the record columns. It changes whenever a
// column does; a Reader accepts its own version only.
const SchemaVersion = "5"

// Keys of the file metadata.
const (
	keySchema     = "exacta.schema_version"
	keyRun        = "exacta.run"
	keyThrough    = "exacta.through"
	keyProvenance = "exacta.provenance."
)

// row is a record as it lies in Parquet. SCHEMA.md documents each column.
type row struct {
	Run                   string    `parquet:"run,dict"`
	Request               string    `parquet:"request,dict"`
	Sequence              int64     `parquet:"sequence,delta"`
	Step                  int64     `parquet:"step,delta"`
	SeqStep               int32     `parquet:"seq_step"`
	Phase                 string    `parquet:"phase,dict"`
	Batch                 int32     `parquet:"batch"`
	BatchRows             int32     `parquet:"batch_rows"`
	IdleRows              int32     `parquet:"idle_rows"`
	PrefillTokens         int32     `parquet:"prefill_tokens"`
	Position              int32     `parquet:"position"`
	Rows                  int32     `parquet:"rows"`
	Cached                int32     `parquet:"cached"`
	Preemptions           int32     `parquet:"preemptions"`
	Drafter               string    `parquet:"drafter,dict"`
	Rule                  string    `parquet:"rule,dict"`
	KPlanned              int32     `parquet:"k_planned"`
	KExecuted             int32     `parquet:"k_executed"`
	TreeNodes             int32     `parquet:"tree_nodes"`
	ProposedIDs           []int32   `parquet:"proposed_ids,list"`
	Parents               []int32   `parquet:"parents,list"`
	TargetIDs             []int32   `parquet:"target_ids,list"`
	Accepted              int32     `parquet:"accepted"`
	NextID                int32     `parquet:"next_id"`
	NextKind              string    `parquet:"next_kind,dict"`
	EmittedIDs            []int32   `parquet:"emitted_ids,list"`
	Emitted               int32     `parquet:"emitted"`
	Lossy                 bool      `parquet:"lossy"`
	Simulated             bool      `parquet:"simulated"`
	Simulation            string    `parquet:"simulation,dict"`
	RealAccepted          int32     `parquet:"real_accepted"`
	RealNextID            int32     `parquet:"real_next_id"`
	ForcedAccepted        int32     `parquet:"forced_accepted"`
	RankHashes            []uint64  `parquet:"rank_hashes,list"`
	Gaps                  []float32 `parquet:"gaps,list"`
	Hashes                []uint64  `parquet:"hashes,list"`
	DraftNs               int64     `parquet:"draft_ns"`
	VerifyNs              int64     `parquet:"verify_ns"`
	TotalNs               int64     `parquet:"total_ns"`
	DraftWorkOps          uint64    `parquet:"draft_ops"`
	DraftWorkLaunches     uint64    `parquet:"draft_launches"`
	DraftWorkMatMulRows   uint64    `parquet:"draft_matmul_rows"`
	DraftWorkMACs         uint64    `parquet:"draft_macs"`
	DraftWorkWeightBytes  uint64    `parquet:"draft_weight_bytes"`
	DraftWorkAttendRows   uint64    `parquet:"draft_attend_rows"`
	DraftWorkKVTokens     uint64    `parquet:"draft_kv_tokens"`
	DraftWorkDeltaRows    uint64    `parquet:"draft_delta_rows"`
	DraftWorkLogitRows    uint64    `parquet:"draft_logit_rows"`
	TargetWorkOps         uint64    `parquet:"target_ops"`
	TargetWorkLaunches    uint64    `parquet:"target_launches"`
	TargetWorkMatMulRows  uint64    `parquet:"target_matmul_rows"`
	TargetWorkMACs        uint64    `parquet:"target_macs"`
	TargetWorkWeightBytes uint64    `parquet:"target_weight_bytes"`
	TargetWorkAttendRows  uint64    `parquet:"target_attend_rows"`
	TargetWorkKVTokens    uint64    `parquet:"target_kv_tokens"`
	TargetWorkDeltaRows   uint64    `parquet:"target_delta_rows"`
	TargetWorkLogitRows   uint64    `parquet:"target_logit_rows"`
}

func toRow(run string, r *engine.Record) row {
	return row{
		Run: run, Request: r.Request, Sequence: r.Sequence, Step: r.Step, SeqStep: r.SeqStep, Phase: string(r.Phase),
		Batch: r.Batch, BatchRows: r.BatchRows, IdleRows: r.IdleRows, PrefillTokens: r.PrefillTokens, Position: r.Position, Rows: r.Rows,
		Cached: r.Cached, Preemptions: r.Preemptions, Drafter: r.Drafter, Rule: r.Rule, KPlanned: r.KPlanned,
		KExecuted: r.KExecuted, TreeNodes: r.TreeNodes, ProposedIDs: r.ProposedIDs, Parents: r.Parents, TargetIDs: r.TargetIDs,
		Accepted: int32(r.Accepted), NextID: r.NextID, NextKind: string(r.NextKind), EmittedIDs: r.EmittedIDs,
		Emitted: int32(r.Emitted()), Lossy: r.Lossy, Simulated: r.Simulated, Simulation: r.Simulation, RealAccepted: int32(r.RealAccepted), RealNextID: r.RealNextID,
		ForcedAccepted: int32(r.ForcedAccepted), RankHashes: r.RankHashes, Gaps: r.Gaps, Hashes: r.Hashes,
		DraftNs: r.DraftNs, VerifyNs: r.VerifyNs, TotalNs: r.TotalNs,
		DraftWorkOps: r.DraftWork.Ops, TargetWorkOps: r.TargetWork.Ops,
		DraftWorkLaunches: r.DraftWork.Launches, TargetWorkLaunches: r.TargetWork.Launches,
		DraftWorkMatMulRows: r.DraftWork.MatMulRows, TargetWorkMatMulRows: r.TargetWork.MatMulRows,
		DraftWorkMACs: r.DraftWork.MACs, TargetWorkMACs: r.TargetWork.MACs,
		DraftWorkWeightBytes: r.DraftWork.WeightBytes, TargetWorkWeightBytes: r.TargetWork.WeightBytes,
		DraftWorkAttendRows: r.DraftWork.AttendRows, TargetWorkAttendRows: r.TargetWork.AttendRows,
		DraftWorkKVTokens: r.DraftWork.KVTokens, TargetWorkKVTokens: r.TargetWork.KVTokens,
		DraftWorkDeltaRows: r.DraftWork.DeltaRows, TargetWorkDeltaRows: r.TargetWork.DeltaRows,
		DraftWorkLogitRows: r.DraftWork.LogitRows, TargetWorkLogitRows: r.TargetWork.LogitRows,
	}
}

func (w *row) record() *engine.Record {
	return &engine.Record{
		Request: w.Request, Sequence: w.Sequence, Step: w.Step, SeqStep: w.SeqStep, Phase: engine.Phase(w.Phase),
		Batch: w.Batch, BatchRows: w.BatchRows, IdleRows: w.IdleRows, PrefillTokens: w.PrefillTokens, Position: w.Position, Rows: w.Rows,
		Cached: w.Cached, Preemptions: w.Preemptions, Drafter: w.Drafter, Rule: w.Rule, KPlanned: w.KPlanned,
		KExecuted: w.KExecuted, TreeNodes: w.TreeNodes, ProposedIDs: w.ProposedIDs, Parents: w.Parents, TargetIDs: w.TargetIDs,
		Accepted: engine.Accepted(w.Accepted), NextID: w.NextID, NextKind: engine.NextKind(w.NextKind), EmittedIDs: w.EmittedIDs,
		Lossy: w.Lossy, Simulated: w.Simulated, Simulation: w.Simulation, RealAccepted: engine.Accepted(w.RealAccepted), RealNextID: w.RealNextID, ForcedAccepted: engine.Accepted(w.ForcedAccepted),
		RankHashes: w.RankHashes, Gaps: w.Gaps, Hashes: w.Hashes, DraftNs: w.DraftNs, VerifyNs: w.VerifyNs, TotalNs: w.TotalNs,
		DraftWork:  kernels.Counters{Ops: w.DraftWorkOps, Launches: w.DraftWorkLaunches, MatMulRows: w.DraftWorkMatMulRows, MACs: w.DraftWorkMACs, WeightBytes: w.DraftWorkWeightBytes, AttendRows: w.DraftWorkAttendRows, KVTokens: w.DraftWorkKVTokens, DeltaRows: w.DraftWorkDeltaRows, LogitRows: w.DraftWorkLogitRows},
		TargetWork: kernels.Counters{Ops: w.TargetWorkOps, Launches: w.TargetWorkLaunches, MatMulRows: w.TargetWorkMatMulRows, MACs: w.TargetWorkMACs, WeightBytes: w.TargetWorkWeightBytes, AttendRows: w.TargetWorkAttendRows, KVTokens: w.TargetWorkKVTokens, DeltaRows: w.TargetWorkDeltaRows, LogitRows: w.TargetWorkLogitRows},
	}
}

// largest bounds the counts of a record; a draft is at most a window long, so
// anything near it is damage.
const largest = 1 << 16

// check refuses what no writer of this package puts into a file of the run, after
// a record of step last. It leaves the identities between counts to the audits.
func (w *row) check(run string, last int64) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("step %d, request %s: %s", w.Step, w.Request, fmt.Sprintf(format, args...))
	}
	switch {
	case w.Run != run:
		return fail("is of run %q among records of run %q", w.Run, run)
	case w.Step < 0 || w.Step < last && w.Step != 0:
		return fail("follows step %d; steps rise, or start again at 0 with another engine", last)
	case int(w.Emitted) != len(w.EmittedIDs):
		return fail("emitted is %d and emitted_ids has %d", w.Emitted, len(w.EmittedIDs))
	case w.Simulated != (w.Simulation != ""):
		return fail("simulated is %v and simulation is %q", w.Simulated, w.Simulation)
	case len(w.Hashes) != len(w.Gaps):
		return fail("has %d hashes and %d gaps", len(w.Hashes), len(w.Gaps))
	case len(w.Parents) != 0 && len(w.Parents) != len(w.ProposedIDs):
		return fail("has %d parents and %d drafts; they are as many, or none", len(w.Parents), len(w.ProposedIDs))
	}
	for i, p := range w.Parents {
		if p < -1 || int(p) >= i {
			return fail("draft %d follows draft %d; it follows one before it, or -1", i, p)
		}
	}
	switch engine.Phase(w.Phase) {
	case engine.Prefill, engine.Decode:
	default:
		return fail("phase is %q; it is prefill or decode", w.Phase)
	}
	switch engine.NextKind(w.NextKind) {
	case engine.NextBonus, engine.NextCorrection, engine.NextSampled, engine.NextNone:
	default:
		return fail("next_kind is %q; it is bonus, correction, sampled or none", w.NextKind)
	}
	for _, c := range []struct {
		column string
		value  int32
	}{
		{"k_planned", w.KPlanned}, {"k_executed", w.KExecuted}, {"tree_nodes", w.TreeNodes},
		{"accepted", w.Accepted}, {"real_accepted", w.RealAccepted}, {"forced_accepted", w.ForcedAccepted},
	} {
		if c.value < 0 || c.value > largest {
			return fail("%s is %d; it is 0..%d", c.column, c.value, largest)
		}
	}
	return nil
}
