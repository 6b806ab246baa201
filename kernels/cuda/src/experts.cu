// Mixtures of experts: the router, the order in which pairs of a row and an expert are
// multiplied (matmul.cu, matmul_hopper.cu), and their weighted sum.

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

struct SortArgs {
	Env e;
	Table ids; // [rows, each]
	i32* order; // [pairs]
	Chunk* chunks;
	i32* count;
	i32 rows, each, experts, most; // most: rows of a chunk
};
LAYOUT(SortArgs, sort);

enum { SORTERS = 16 };

// id_of reads the expert of pair i; -1, and a fault, if there is no such expert.
INLINE i32 id_of(const SortArgs& a, i32 i) {
	const i32 r = i / a.each, e = a.ids.row(r)[i % a.each];
	if (e >= 0 && e < a.experts) return e;
	fail(a.e, FAULT_INDEX, r, e, a.experts);
	return -1;
}

// sort_pairs brings the pairs of a row and an expert into the order of experts, and of
// pairs within an expert, and cuts what each expert has into chunks. One block of
// SORTERS warps, each of which counts and then places a range of pairs.
extern "C" __global__ void __launch_bounds__(32 * SORTERS) sort_pairs(const __grid_constant__ SortArgs a) {
	extern __shared__ i32 start[]; // [experts], then u16 [SORTERS][experts]
	u16* counts = (u16*)(start + a.experts);
	const i32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pairs = a.rows * a.each;
	let_next_kernel_start();
	after_kernel_in_front();
	const i32 span = (pairs + 32 * SORTERS - 1) / (32 * SORTERS) * 32, from = warp * span, to = min(pairs, from + span);
	u16* mine = counts + warp * a.experts;
	for (i32 i = threadIdx.x; i < SORTERS * a.experts; i += blockDim.x) counts[i] = 0;
	__syncthreads();
	for (i32 i = from; i < to; i += 32) {
		const i32 e = i + lane < to ? id_of(a, i + lane) : -1;
		const u32 alike = __match_any_sync(~0u, e);
		if (e >= 0 && lane == __ffs(alike) - 1) mine[e] += __popc(alike);
		__syncwarp();
	}
	__syncthreads();
	for (i32 e = threadIdx.x; e < a.experts; e += blockDim.x) {
		i32 sum = 0;
		for (i32 w = 0; w < SORTERS; w++) {
			const i32 n = counts[w * a.experts + e];
			counts[w * a.experts + e] = sum;
			sum += n;
		}
		start[e] = sum;
	}
	__syncthreads();
	if (warp == 0) {
		i32 place = 0, chunk = 0;
		for (i32 i = 0; i < a.experts; i += 32) {
			const i32 e = i + lane, n = e < a.experts ? start[e] : 0, c = (n + a.most - 1) / a.most;
			i32 ns = n, cs = c; // inclusive sums over the lanes
			for (i32 o = 1; o < 32; o <<= 1) {
				const i32 n1 = __shfl_up_sync(~0u, ns, o), c1 = __shfl_up_sync(~0u, cs, o);
				if (lane >= o) ns += n1, cs += c1;
			}
			if (e < a.experts) start[e] = place + ns - n;
			for (i32 j = 0; j < c; j++) a.chunks[chunk + cs - c + j] = {e, place + ns - n + j * a.most, min(a.most, n - j * a.most), 0};
			place += __shfl_sync(~0u, ns, 31);
			chunk += __shfl_sync(~0u, cs, 31);
		}
		if (lane == 0) *a.count = chunk;
	}
	__syncthreads();
	for (i32 i = from; i < to; i += 32) {
		const i32 e = i + lane < to ? id_of(a, i + lane) : -1;
		const u32 alike = __match_any_sync(~0u, e);
		if (e >= 0) a.order[start[e] + mine[e] + __popc(alike & ((1u << lane) - 1))] = i + lane;
		__syncwarp();
		if (e >= 0 && lane == __ffs(alike) - 1) mine[e] += __popc(alike);
		__syncwarp();
	}
}

struct SumArgs {
	Env e;
	Any dst, res; // by dst_f32 and res_f32; res.p may be null
	View<float> weights;
	const float* y; // [rows, each, n]
	i32 each, n, dst_f32, res_f32;
};
LAYOUT(SumArgs, sum);

// sum_pairs adds what the experts of a row gave: grid (outputs / THREADS, rows).
KERNEL(sum_pairs, SumArgs) {
	const i32 c = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
	let_next_kernel_start();
	after_kernel_in_front();
	if (c >= a.n) return;
	const float *w = a.weights.row(r), *in = a.y + (u64)r * a.each * a.n + c;
	float y = 0;
#pragma unroll 8
	for (i32 j = 0; j < a.each; j++) y += w[j] * in[(u64)j * a.n];
	if (a.res.p) y += load1(a.res, a.res_f32, (u64)r * a.res.ld + c);
	const u64 at = (u64)r * a.dst.ld + c;
	if (a.dst_f32) ((float*)a.dst.p)[at] = y;
	else ((u16*)a.dst.p)[at] = f2bf(y);
}
