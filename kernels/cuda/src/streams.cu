// Residual streams, and tables of rows.

enum { MAX_STREAMS = 16 };

struct ActivateArgs {
	Env e;
	Any dst;
	View<float> x;
	float in, out;
	i32 act, cols, f32, pad;
};
LAYOUT(ActivateArgs, activate);

INLINE void store(const Any& dst, bool f32, i32 r, i32 c, float y) {
	const u64 at = (u64)r * dst.ld + c;
	if (f32) ((float*)dst.p)[at] = y;
	else ((u16*)dst.p)[at] = f2bf(y);
}

// One block per row.
KERNEL(activate_rows, ActivateArgs) {
	const i32 r = blockIdx.x;
	for (i32 c = threadIdx.x; c < a.cols; c += THREADS)
		store(a.dst, a.f32, r, c, a.out * activate(a.act, a.in * a.x.row(r)[c]));
}

struct CollapseArgs {
	Env e;
	View<u16> dst, x;
	View<float> w; // null: 1
	float scale;
	i32 n, h, each; // each: a weight for every element
};
LAYOUT(CollapseArgs, collapse);

KERNEL(collapse, CollapseArgs) {
	const i32 r = blockIdx.x;
	const u16* x = a.x.row(r);
	for (i32 c = threadIdx.x; c < a.h; c += THREADS) {
		float sum = 0;
		for (i32 s = 0; s < a.n; s++) {
			const float v = bf2f(x[s * a.h + c]);
			sum += a.w.p ? a.w.row(r)[a.each ? s * a.h + c : s] * v : v;
		}
		a.dst.row(r)[c] = f2bf(sum * a.scale);
	}
}

struct SpreadArgs {
	Env e;
	View<u16> x, y;
	View<float> inject, mix; // mix may be null
	i32 n, h;
};
LAYOUT(SpreadArgs, spread);

KERNEL(spread, SpreadArgs) {
	const i32 r = blockIdx.x;
	u16* x = a.x.row(r);
	const float* inject = a.inject.row(r);
	for (i32 c = threadIdx.x; c < a.h; c += THREADS) {
		float old[MAX_STREAMS];
		for (i32 s = 0; s < a.n; s++) old[s] = bf2f(x[s * a.h + c]);
		const float y = bf2f(a.y.row(r)[c]);
		for (i32 k = 0; k < a.n; k++) {
			float sum = old[k];
			if (a.mix.p) {
				sum = 0;
				for (i32 j = 0; j < a.n; j++) sum += a.mix.row(r)[j * a.n + k] * old[j];
			}
			x[k * a.h + c] = f2bf(sum + inject[k] * y);
		}
	}
}

struct GateArgs {
	Env e;
	Any dst;
	View<u16> q, k;
	i32 n, h, f32, pad;
};
LAYOUT(GateArgs, gate);

// One warp per stream of a row: grid (rows, streams/4).
KERNEL(gate, GateArgs) {
	const i32 r = blockIdx.x, lane = threadIdx.x & 31, s = blockIdx.y * WARPS + (threadIdx.x >> 5);
	if (s >= a.n) return;
	const u16 *q = a.q.row(r) + s * a.h, *k = a.k.row(r) + s * a.h;
	float sum = 0;
	for (i32 i = lane; i < a.h; i += 32) sum = fmaf(bf2f(q[i]), bf2f(k[i]), sum);
	const float d = warp_sum(sum) / sqrtf((float)a.h);
	if (lane == 0) store(a.dst, a.f32, r, s, sigmoid(copysignf(sqrtf(fmaxf(fabsf(d), 1e-6f)), d)));
}

struct LookupArgs {
	Env e;
	View<u16> dst;
	Table ids;
	const u16* table;
	i32 cols, table_rows, n, pad;
};
LAYOUT(LookupArgs, lookup);

// One block per row and lookup.
KERNEL(lookup, LookupArgs) {
	const i32 r = blockIdx.x, j = blockIdx.y, id = a.ids.row(r)[j];
	if (id < 0 || id >= a.table_rows) {
		if (threadIdx.x == 0) fail(a.e, FAULT_INDEX, r, id, a.table_rows);
		return;
	}
	const u16* src = a.table + (u64)id * a.cols;
	u16* dst = a.dst.row(r) + (u64)j * a.cols;
	for (i32 i = threadIdx.x; i < a.cols; i += THREADS) dst[i] = src[i];
}
