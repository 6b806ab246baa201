// Mixtures of experts: the router, the experts of a row, and their weighted sum. A
// warp computes one output of one row alone, so that no row sees another.

enum { MAX_EXPERTS = 2048 };
enum { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SQRT_SOFTPLUS };

struct RouteArgs {
	Env e;
	View<i32> ids;
	View<float> weights, logits;
	const float* bias; // null: zeros
	float scale;
	i32 experts, k, score;
	i32 groups, kept, normalize, given, pad;
};
LAYOUT(RouteArgs, route);

// largest returns to the whole block the first index of the largest value among
// those that left marks; a NaN counts as minus infinity.
INLINE i32 largest(const float* x, const u8* left, i32 n, float* red, i32* at) {
	i32 best = -1;
	float top = -INF;
	for (i32 i = threadIdx.x; i < n; i += THREADS)
		if (left[i] && (best < 0 || x[i] > top)) {
			best = i;
			if (x[i] > top) top = x[i];
		}
	__syncthreads();
	red[threadIdx.x] = top;
	at[threadIdx.x] = best;
	for (int o = THREADS / 2; o > 0; o >>= 1) {
		__syncthreads();
		if (threadIdx.x >= o) continue;
		const i32 a = at[threadIdx.x], b = at[threadIdx.x + o];
		const float x0 = red[threadIdx.x], x1 = red[threadIdx.x + o];
		if (b >= 0 && (a < 0 || x1 > x0 || (x1 == x0 && b < a))) {
			red[threadIdx.x] = x1;
			at[threadIdx.x] = b;
		}
	}
	__syncthreads();
	return at[0];
}

// One block per row.
KERNEL(route, RouteArgs) {
	__shared__ float score[MAX_EXPERTS], choice[MAX_EXPERTS], value[MAX_EXPERTS], red[THREADS];
	__shared__ u8 left[MAX_EXPERTS], open[MAX_EXPERTS];
	__shared__ i32 at[THREADS];
	const i32 r = blockIdx.x, tid = threadIdx.x, n = a.experts, size = n / a.groups;
	const float* x = a.logits.row(r);
	float sum = 1.0f;
	if (a.score == SCORE_SOFTMAX) {
		float top = -INF;
		for (i32 i = tid; i < n; i += THREADS) top = fmaxf(top, x[i]);
		top = block_max(top, red);
		sum = 0;
		for (i32 i = tid; i < n; i += THREADS) {
			score[i] = expf(x[i] - top);
			sum += score[i];
		}
		sum = block_sum(sum, red);
	} else {
		for (i32 i = tid; i < n; i += THREADS) score[i] = a.score == SCORE_SIGMOID ? sigmoid(x[i]) : sqrtf(softplus(x[i]));
	}
	for (i32 i = tid; i < n; i += THREADS) {
		choice[i] = (a.score == SCORE_SOFTMAX ? x[i] : score[i]) + (a.bias ? a.bias[i] : 0.0f);
		left[i] = a.groups == 1;
	}
	for (i32 g = tid; g < a.groups && a.groups > 1; g += THREADS) {
		const float* in = choice + g * size;
		float first = -INF, second = -INF;
		for (i32 i = 0; i < size; i++) {
			if (in[i] > first) second = first, first = in[i];
			else if (in[i] > second) second = in[i];
		}
		value[g] = first + second;
		open[g] = 1;
	}
	__syncthreads();
	for (i32 j = 0; j < a.kept && a.groups > 1; j++) {
		const i32 g = largest(value, open, a.groups, red, at);
		if (tid == 0) open[g] = 0;
		for (i32 i = tid; i < size; i += THREADS) left[g * size + i] = 1;
		__syncthreads();
	}
	i32* ids = a.ids.row(r);
	float* weights = a.weights.row(r);
	float total = 0;
	__syncthreads();
	for (i32 j = 0; j < a.k; j++) {
		i32 e = a.given ? ids[j] : largest(choice, left, n, red, at);
		if (e < 0 || e >= n) {
			if (tid == 0) fail(a.e, FAULT_INDEX, r, e, n);
			e = 0;
		}
		const float w = score[e] / sum;
		total += w;
		if (tid == 0) {
			left[e] = 0;
			ids[j] = e;
			weights[j] = w;
		}
		__syncthreads();
	}
	if (a.score != SCORE_SOFTMAX) total += 1e-20f;
	if (tid != 0) return;
	for (i32 j = 0; j < a.k; j++) weights[j] = (a.normalize ? weights[j] / total : weights[j]) * a.scale;
}

struct ExpertsArgs {
	Env e;
	Any dst, res; // by dst_f32 and res_f32; res.p may be null
	View<u16> x;
	Table ids; // [rows, each]
	View<float> weights;
	const u16* w; // [experts, n, k]; paired: [experts, 2n, k], gates first
	i32 rows, each, experts;
	i32 n, k, act, paired;
	i32 dst_f32, res_f32, pad;
};
LAYOUT(ExpertsArgs, experts);

// product is one output of a row: lanes take elements of K in turns, and their sums
// are added as a tree.
INLINE float product(const u16* w, const u16* x, i32 k, i32 lane) {
	float s = 0;
	for (i32 i = lane; i < k; i += 32) s = fmaf(bf2f(w[i]), bf2f(x[i]), s);
	return warp_sum(s);
}

INLINE void put(const Any& d, i32 f32, i32 r, i32 c, float y) {
	const u64 at = (u64)r * d.ld + c;
	if (f32) ((float*)d.p)[at] = y;
	else ((u16*)d.p)[at] = f2bf(y);
}

// expert_of reads which expert the j-th of row r is; -1, and a fault, if there is
// no such expert.
INLINE i32 expert_of(const ExpertsArgs& a, i32 r, i32 j) {
	const i32 e = a.ids.row(r)[j];
	if (e >= 0 && e < a.experts) return e;
	if (threadIdx.x == 0) fail(a.e, FAULT_INDEX, r, e, a.experts);
	return -1;
}

// Grid (outputs / WARPS, pairs): one warp per output of a pair.
KERNEL(experts, ExpertsArgs) {
	const i32 c = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31, pair = blockIdx.y;
	const i32 e = expert_of(a, pair / a.each, pair % a.each);
	if (c >= a.n || e < 0) return;
	const u16* x = a.x.row(pair / a.each);
	const u16* w = a.w + (u64)e * a.n * (a.paired ? 2 : 1) * a.k;
	float y = product(w + (u64)c * a.k, x, a.k, lane);
	if (a.paired) y = silu(y) * product(w + (u64)(a.n + c) * a.k, x, a.k, lane);
	else y = activate(a.act, y);
	if (lane == 0) put(a.dst, a.dst_f32, pair, c, y);
}

// Grid (outputs / WARPS, rows): one warp per output of a row.
KERNEL(mix, ExpertsArgs) {
	const i32 c = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31, r = blockIdx.y;
	if (c >= a.n) return;
	float y = 0;
	for (i32 j = 0; j < a.each; j++) {
		const i32 e = expert_of(a, r, j);
		if (e < 0) return;
		y += a.weights.row(r)[j] * product(a.w + ((u64)e * a.n + c) * a.k, a.x.row(r * a.each + j), a.k, lane);
	}
	if (lane != 0) return;
	const u64 at = (u64)r * a.res.ld + c;
	if (a.res.p) y += a.res_f32 ? ((const float*)a.res.p)[at] : bf2f(((const u16*)a.res.p)[at]);
	put(a.dst, a.dst_f32, r, c, y);
}

// Grid (outputs of all blocks / WARPS, rows): one warp per output of a row.
KERNEL(blocks, ExpertsArgs) {
	const i32 c = blockIdx.x * WARPS + (threadIdx.x >> 5), lane = threadIdx.x & 31, r = blockIdx.y;
	if (c >= a.n * a.experts) return;
	const float y = product(a.w + (u64)c * a.k, a.x.row(r) + c / a.n * a.k, a.k, lane);
	if (lane == 0) put(a.dst, a.dst_f32, r, c, y);
}
