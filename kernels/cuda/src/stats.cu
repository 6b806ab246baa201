// Top two, NaN count and hash of each row of logits.

enum { SEGMENT = 1024, MAX_SEGMENTS = 512, LANES = 4 };
enum { TOP1, TOP2, LOGIT1, LOGIT2, HASH_LO, HASH_HI, NANS, SPARE };

struct Top { float v1, v2; i32 i1, i2; };

// Part is what a block finds in one segment of a row.
struct Part { Top top; u64 hash; i32 nans, pad; };

struct StatsArgs {
	Env e;
	View<i32> dst;
	View<const float> x;
	Part* parts; // [rows, segments]
	i32 cols, vocab, hash, segments;
};
LAYOUT(StatsArgs, stats);

// before is the order of candidates: numbers downwards, then NaN; equal ones by
// id. An id of -1 is no candidate.
INLINE bool before(float va, i32 ia, float vb, i32 ib) {
	if (ia < 0 || ib < 0) return ib < 0 && ia >= 0;
	bool na = va != va, nb = vb != vb;
	if (na != nb) return nb;
	if (!na && va != vb) return va > vb;
	return ia < ib;
}

INLINE void insert(Top& t, float v, i32 i) {
	if (before(v, i, t.v1, t.i1)) {
		t.v2 = t.v1, t.i2 = t.i1;
		t.v1 = v, t.i1 = i;
	} else if (before(v, i, t.v2, t.i2)) {
		t.v2 = v, t.i2 = i;
	}
}

INLINE u64 mix(u64 h, u64 v) {
	h = (h ^ v) * 0xff51afd7ed558ccdull;
	return h ^ h >> 29;
}

const u64 HASH_SEED = 0x9e3779b97f4a7c15ull;

INLINE u64 bits(float f) { return f != f ? 0x7fc00000u : __float_as_uint(f); }

// One block per segment of a row: grid (segments, rows).
KERNEL(stats_parts, StatsArgs) {
	__shared__ float x[SEGMENT];
	__shared__ Top tops[WARPS];
	__shared__ i32 nans[WARPS];
	const i32 s = blockIdx.x, r = blockIdx.y, tid = threadIdx.x, n = min(SEGMENT, a.cols - s * SEGMENT);
	const float* row = a.x.row(r) + s * SEGMENT;
	Top t = {0, 0, -1, -1};
	i32 nan = 0;
#pragma unroll
	for (i32 j = 0; j < SEGMENT / THREADS; j++) {
		const i32 i = tid + j * THREADS;
		if (i >= n) break;
		const float v = row[i];
		x[i] = v;
		nan += v != v;
		if (s * SEGMENT + i < a.vocab) insert(t, v, s * SEGMENT + i);
	}
#pragma unroll
	for (int o = 16; o > 0; o >>= 1) {
		const Top u = {__shfl_down_sync(~0u, t.v1, o), __shfl_down_sync(~0u, t.v2, o), __shfl_down_sync(~0u, t.i1, o), __shfl_down_sync(~0u, t.i2, o)};
		insert(t, u.v1, u.i1);
		insert(t, u.v2, u.i2);
		nan += __shfl_down_sync(~0u, nan, o);
	}
	if (tid % 32 == 0) tops[tid / 32] = t, nans[tid / 32] = nan;
	__syncthreads();
	Part* part = a.parts + (u64)r * a.segments + s;
	if (tid >= 32 && tid < 64 && tid % 32 == 0) {
		for (int w = 1; w < WARPS; w++) {
			insert(tops[0], tops[w].v1, tops[w].i1);
			insert(tops[0], tops[w].v2, tops[w].i2);
			nans[0] += nans[w];
		}
		part->top = tops[0];
		part->nans = nans[0];
	}
	if (!a.hash || tid >= 32) return;
	// Lanes of the hash are threads; those beyond them repeat the work.
	const i32 lane = tid % LANES;
	u64 h = HASH_SEED + lane;
#pragma unroll 8
	for (i32 i = lane; i < n; i += LANES) h = mix(h, bits(x[i]));
	u64 f = (u64)n;
	for (int j = 0; j < LANES; j++) f = mix(f, __shfl_sync(~0u, h, j, LANES));
	if (tid == 0) part->hash = f;
}

// One block per row, after stats_parts.
KERNEL(stats, StatsArgs) {
	__shared__ Top tops[WARPS];
	__shared__ i32 nans[WARPS];
	__shared__ u64 hashes[MAX_SEGMENTS];
	const i32 r = blockIdx.x, tid = threadIdx.x;
	const Part* parts = a.parts + (u64)r * a.segments;
	Top t = {0, 0, -1, -1};
	i32 nan = 0;
	for (i32 s = tid; s < a.segments; s += THREADS) {
		const Part p = parts[s];
		insert(t, p.top.v1, p.top.i1);
		insert(t, p.top.v2, p.top.i2);
		nan += p.nans;
		hashes[s] = p.hash;
	}
#pragma unroll
	for (int o = 16; o > 0; o >>= 1) {
		const Top u = {__shfl_down_sync(~0u, t.v1, o), __shfl_down_sync(~0u, t.v2, o), __shfl_down_sync(~0u, t.i1, o), __shfl_down_sync(~0u, t.i2, o)};
		insert(t, u.v1, u.i1);
		insert(t, u.v2, u.i2);
		nan += __shfl_down_sync(~0u, nan, o);
	}
	if (tid % 32 == 0) tops[tid / 32] = t, nans[tid / 32] = nan;
	__syncthreads();
	i32* d = a.dst.row(r);
	if (tid == 0) {
		u64 h = 0;
		if (a.hash) {
			h = HASH_SEED;
			for (i32 s = 0; s < a.segments; s++) h = mix(h, hashes[s]);
		}
		d[HASH_LO] = (i32)(u32)h;
		d[HASH_HI] = (i32)(u32)(h >> 32);
	}
	if (tid != 32) return;
	for (int w = 1; w < WARPS; w++) {
		insert(tops[0], tops[w].v1, tops[w].i1);
		insert(tops[0], tops[w].v2, tops[w].i2);
		nans[0] += nans[w];
	}
	d[TOP1] = tops[0].i1;
	d[TOP2] = tops[0].i2;
	d[LOGIT1] = __float_as_int(tops[0].v1);
	d[LOGIT2] = __float_as_int(tops[0].v2);
	d[NANS] = nans[0];
	d[SPARE] = 0;
}
