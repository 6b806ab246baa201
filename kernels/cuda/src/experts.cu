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

// order_of maps numbers to integers of their order: NaN is minus infinity, and zeros are
// equal. None is 0.
INLINE u32 order_of(float f) {
	const u32 u = __float_as_uint(f != f ? -INF : f + 0.0f);
	return u >> 31 ? ~u : u | 1u << 31;
}

// Best is the first of the largest orders that a lane has, among those of its turns.
struct Best {
	u32 order;
	i32 at;
	__device__ __forceinline__ Best(const u32* orders, i32 n, i32 lane) : order(0), at(0) {
#pragma unroll 8
		for (i32 i = lane; i < n; i += 32)
			if (orders[i] > order) order = orders[i], at = i;
	}
};

// take returns to the whole warp the first of the largest orders and sets it to 0; -1 if
// all are. own is the lane's best.
INLINE i32 take(u32* orders, i32 n, Best& own, i32 lane) {
	const u32 top = __reduce_max_sync(~0u, own.order);
	if (top == 0) return -1;
	const i32 at = __reduce_min_sync(~0u, own.order == top ? (u32)own.at : ~0u);
	if (at % 32 == lane) {
		orders[at] = 0;
		own = Best(orders, n, lane);
	}
	return at;
}

// One warp per row. Shared memory: two numbers and an order of each expert, an order of
// each group, the chosen ones.
KERNEL_OF(32, route, RouteArgs) {
	extern __shared__ float score[];
	const i32 r = blockIdx.x, lane = threadIdx.x, n = a.experts, size = n / a.groups;
	float* choice = score + n;
	u32 *orders = (u32*)(choice + n), *groups = orders + n;
	i32* chosen = (i32*)(groups + a.groups);
	const float* x = a.logits.row(r);
#pragma unroll 8
	for (i32 i = lane; i < n; i += 32) choice[i] = x[i];
	__syncwarp();
	float sum = 1.0f;
	if (a.score == SCORE_SOFTMAX) {
		float top = -INF;
		for (i32 i = lane; i < n; i += 32) top = fmaxf(top, choice[i]);
		top = warp_max(top);
		sum = 0;
		for (i32 i = lane; i < n; i += 32) {
			score[i] = expf(choice[i] - top);
			sum += score[i];
		}
		sum = warp_sum(sum);
	} else {
		for (i32 i = lane; i < n; i += 32) choice[i] = score[i] = a.score == SCORE_SIGMOID ? sigmoid(choice[i]) : sqrtf(softplus(choice[i]));
	}
	for (i32 i = lane; i < n; i += 32) {
		choice[i] += a.bias ? a.bias[i] : 0.0f;
		orders[i] = order_of(choice[i]);
	}
	__syncwarp();
	if (a.groups > 1) {
		for (i32 g = lane; g < a.groups; g += 32) {
			const float* in = choice + g * size;
			float first = -INF, second = -INF;
			for (i32 i = 0; i < size; i++) {
				if (in[i] > first) second = first, first = in[i];
				else if (in[i] > second) second = in[i];
			}
			groups[g] = order_of(first + second);
		}
		__syncwarp();
		Best best(groups, a.groups, lane);
		for (i32 j = 0; j < a.kept; j++) take(groups, a.groups, best, lane);
		__syncwarp();
		for (i32 i = lane; i < n; i += 32)
			if (groups[i / size] != 0) orders[i] = 0; // it was not taken
		__syncwarp();
	}
	i32* ids = a.ids.row(r);
	float *weights = a.weights.row(r), total = 0;
	Best best(orders, n, lane);
	for (i32 j = 0; j < a.k; j++) {
		i32 e = a.given ? ids[j] : take(orders, n, best, lane);
		if (e < 0 || e >= n) {
			if (lane == 0) fail(a.e, FAULT_INDEX, r, e, n);
			e = 0;
		}
		total += score[e] / sum;
		if (lane == 0) chosen[j] = e;
	}
	__syncwarp();
	if (a.score != SCORE_SOFTMAX) total += 1e-20f;
	for (i32 j = lane; j < a.k; j += 32) {
		const float w = score[chosen[j]] / sum;
		ids[j] = chosen[j];
		weights[j] = (a.normalize ? w / total : w) * a.scale;
	}
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
KERNEL_OF(32 * SORTERS, sort_pairs, SortArgs) {
	extern __shared__ i32 start[]; // [experts], then u16 [SORTERS][experts]
	u16* counts = (u16*)(start + a.experts);
	const i32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, pairs = a.rows * a.each;
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
