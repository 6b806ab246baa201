// Top two, NaN count and hash of each row of logits.

enum { SEGMENT = 1024, MAX_SEGMENTS = 512, LANES = 4, TOGETHER = 8, SPREAD = SEGMENT + LANES };
enum { TOP1, TOP2, LOGIT1, LOGIT2, HASH_LO, HASH_HI, NANS, SPARE };

struct Top { float v1, v2; i32 i1, i2; };

// Part is what a block finds in TOGETHER segments of a row.
struct Part { Top top; u64 hash[TOGETHER]; i32 nans, pad; };

struct StatsArgs {
	Env e;
	View<i32> dst;
	View<const float> x;
	Part* parts; // [rows, segments / TOGETHER]
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

// warp_top brings the top two of a warp to its first lane.
INLINE void warp_top(Top& t) {
#pragma unroll
	for (int o = 16; o > 0; o >>= 1) {
		const Top u = {__shfl_down_sync(~0u, t.v1, o), __shfl_down_sync(~0u, t.v2, o), __shfl_down_sync(~0u, t.i1, o), __shfl_down_sync(~0u, t.i2, o)};
		insert(t, u.v1, u.i1);
		insert(t, u.v2, u.i2);
	}
}

// hash_segments hashes the segments of n columns that lie in x, by one warp: each by
// LANES of its lanes.
INLINE void hash_segments(const float* x, i32 n, i32 lane, u64* out) {
	const i32 s = lane / LANES, own = min(SEGMENT, n - s * SEGMENT);
	u64 h = HASH_SEED + lane % LANES;
#pragma unroll 8
	for (i32 i = lane % LANES; i < own; i += LANES) h = mix(h, bits(x[s * SPREAD + i]));
	u64 f = (u64)max(own, 0);
	for (int j = 0; j < LANES; j++) f = mix(f, __shfl_sync(~0u, h, j, LANES));
	if (lane % LANES == 0) out[s] = f;
}

// One block per TOGETHER segments of a row: grid (segments / TOGETHER, rows). First the
// two largest numbers are found, then where they are: few threads have them.
KERNEL(stats_parts, StatsArgs) {
	__shared__ __align__(16) float x[TOGETHER * SPREAD];
	__shared__ float largest[WARPS][2];
	__shared__ Top tops[WARPS];
	__shared__ i32 nans[WARPS];
	enum { ALL = TOGETHER * SEGMENT };
	const i32 first = blockIdx.x * ALL, r = blockIdx.y, tid = threadIdx.x, warp = tid / 32, n = min((i32)ALL, a.cols - first);
	const float* row = a.x.row(r) + first;
	const auto put = [&](i32 i, float v) { x[i / SEGMENT * SPREAD + i % SEGMENT] = v; };
	const auto at = [&](i32 i) { return x[i / SEGMENT * SPREAD + i % SEGMENT]; };
	const i32 whole = at_once(row) ? n / 4 : 0;
#pragma unroll 8
	for (i32 i = tid; i < whole; i += THREADS) *(float4*)(x + i / (SEGMENT / 4) * SPREAD + i % (SEGMENT / 4) * 4) = ((const float4*)row)[i];
#pragma unroll 8
	for (i32 i = 4 * whole + tid; i < n; i += THREADS) put(i, row[i]);
	__syncthreads();
	float v1 = -INF, v2 = -INF;
	Top t = {0, 0, -1, -1};
	i32 nan = 0;
	const i32 named = min(n, a.vocab - first);
#pragma unroll 8
	for (i32 i = tid; i < n; i += THREADS) {
		const float v = at(i), known = v == v && i < named ? v : -INF;
		nan += v != v;
		v2 = fmaxf(v2, fminf(v1, known));
		v1 = fmaxf(v1, known);
	}
#pragma unroll
	for (int o = 16; o > 0; o >>= 1) {
		const float u1 = __shfl_xor_sync(~0u, v1, o), u2 = __shfl_xor_sync(~0u, v2, o);
		v2 = fmaxf(fmaxf(v2, u2), fminf(v1, u1));
		v1 = fmaxf(v1, u1);
	}
	if (tid % 32 == 0) largest[warp][0] = v1, largest[warp][1] = v2;
	__syncthreads();
	float b1 = -INF, bar = -INF;
#pragma unroll
	for (int w = 0; w < WARPS; w++) {
		const float u1 = largest[w][0], u2 = largest[w][1];
		bar = fmaxf(fmaxf(bar, u2), fminf(b1, u1));
		b1 = fmaxf(b1, u1);
	}
	// At a bar of minus infinity all are looked at, NaN too.
	if (v1 >= bar) {
		for (i32 i = tid; i < named; i += THREADS) {
			const float v = at(i);
			if (v >= bar || bar == -INF) insert(t, v, first + i);
		}
		warp_top(t);
	}
	nan = __reduce_add_sync(~0u, nan);
	if (tid % 32 == 0) tops[warp] = t, nans[warp] = nan;
	Part* part = a.parts + (u64)r * gridDim.x + blockIdx.x;
	if (a.hash && warp == 0) hash_segments(x, n, tid, part->hash);
	__syncthreads();
	if (tid != 32) return;
	for (int w = 1; w < WARPS; w++) {
		insert(tops[0], tops[w].v1, tops[w].i1);
		insert(tops[0], tops[w].v2, tops[w].i2);
		nans[0] += nans[w];
	}
	part->top = tops[0];
	part->nans = nans[0];
}

// One block per row, after stats_parts.
KERNEL(stats, StatsArgs) {
	__shared__ Top tops[WARPS];
	__shared__ i32 nans[WARPS];
	__shared__ u64 hashes[MAX_SEGMENTS];
	const i32 r = blockIdx.x, tid = threadIdx.x;
	const i32 n = (a.segments + TOGETHER - 1) / TOGETHER;
	const Part* parts = a.parts + (u64)r * n;
	Top t = {0, 0, -1, -1};
	i32 nan = 0;
	for (i32 s = tid; s < n; s += THREADS) {
		const Part& p = parts[s];
		insert(t, p.top.v1, p.top.i1);
		insert(t, p.top.v2, p.top.i2);
		nan += p.nans;
	}
	for (i32 s = tid; s < a.segments && a.hash; s += THREADS) hashes[s] = parts[s / TOGETHER].hash[s % TOGETHER];
	warp_top(t);
	nan = __reduce_add_sync(~0u, nan);
	if (tid % 32 == 0) tops[tid / 32] = t, nans[tid / 32] = nan;
	__syncthreads();
	i32* d = a.dst.row(r);
	if (tid == 0) {
		u64 h = 0;
		if (a.hash) {
			h = HASH_SEED;
			#pragma unroll 8
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
