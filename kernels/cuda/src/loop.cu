// What a program leaves for the host, and the end of sequences in a loop.

enum { POST_VIEWS = 4, RING_CLOCK = 2, RING_WORK = 4, RING_DATA = 16 };

struct PostArgs {
	Env e;
	u32* mem;    // pinned: [entries, words]
	u32* posted; // entries so far
	View<const i32> views[POST_VIEWS];
	i32 cols[POST_VIEWS];
	i32 entries, words;
};
LAYOUT(PostArgs, post);

// One block. The entry's number is written last: the host polls it.
KERNEL(post, PostArgs) {
	const i32 tid = threadIdx.x;
	const u32 n = *a.posted;
	volatile u32* entry = a.mem + (u64)(n % a.entries) * a.words;
	i32 at = RING_DATA;
	for (int i = 0; i < POST_VIEWS; i++) {
		const View<const i32>& v = a.views[i];
		for (i32 j = tid; v.p && j < v.rows * a.cols[i]; j += THREADS) entry[at + j] = (u32)v.row(j / a.cols[i])[j % a.cols[i]];
		if (v.p) at += v.rows * a.cols[i];
	}
	if (tid == 0) {
		u64 clock;
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(clock));
		entry[1] = at - RING_DATA;
		*(volatile u64*)(entry + RING_CLOCK) = clock;
		for (int i = 0; i < 3; i++) *(volatile u64*)(entry + RING_WORK + 2 * i) = ((volatile u64*)a.e.work)[i];
	}
	__threadfence_system();
	__syncthreads();
	if (tid != 0) return;
	*a.posted = n + 1;
	entry[0] = n + 1;
}

struct DrawArgs {
	Env e;
	Batch b;
	Table dst;
	View<const i32> stats, how;
	View<const float> x;
	struct Best* parts; // [rows, chunks]
	i32 vocab, chunks;
};
LAYOUT(DrawArgs, draw);

// Best is the winner of a part of a race.
struct Best { double value; i32 id, pad; };

INLINE void offer(Best& a, double value, i32 id) {
	if (id >= 0 && (a.id < 0 || value < a.value || (value == a.value && id < a.id))) a.value = value, a.id = id;
}

// Exp and Log of package kernels, product by product.
INLINE double exp_of(double x) {
	if (x < -745.2) return 0;
	if (x > -0x1p-28) return 1 + x;
	const long long k = (long long)(1.44269504088896338700e+00 * x - 0.5);
	const double hi = x - (double)k * 6.93147180369123816490e-01, lo = (double)k * 1.90821492927058770002e-10;
	const double r = hi - lo, t = r * r;
	double c = t * 4.13813679705723846039e-08;
	c = t * (-1.65339022054652515390e-06 + c);
	c = t * (6.61375632143793436117e-05 + c);
	c = t * (-2.77777777770155933842e-03 + c);
	c = r - t * (1.66666666666666657415e-01 + c);
	const double y = 1 - ((lo - r * c / (2 - c)) - hi);
	if (k > -1022) return y * __longlong_as_double((k + 1023) << 52);
	return y * __longlong_as_double((k + 1023 + 64) << 52) * 0x1p-64;
}

INLINE double log_of(double x) {
	const u64 b = (u64)__double_as_longlong(x);
	long long e = (long long)(b >> 52) - 1022;
	double f = __longlong_as_double((long long)((b & ((1ull << 52) - 1)) | 1022ull << 52));
	if (f < 1.41421356237309504880168872420969807856967187537694 / 2) f *= 2, e--;
	f--;
	const double k = (double)e, s = f / (2 + f), s2 = s * s, s4 = s2 * s2;
	double a = s4 * 1.479819860511658591e-01;
	a = s4 * (1.818357216161805012e-01 + a);
	a = s4 * (2.857142874366239149e-01 + a);
	a = s2 * (6.666666666666735130e-01 + a);
	double c = s4 * 1.531383769920937332e-01;
	c = s4 * (2.222219843214978396e-01 + c);
	c = s4 * (3.999999999940941908e-01 + c);
	const double r = a + c, half = 0.5 * f * f;
	return k * 6.93147180369123816490e-01 - ((half - (s * (half + r) + k * 1.90821492927058770002e-10)) - f);
}

// One counter of Philox4x32-10.
INLINE void philox(u32 (&c)[4], u32 k0, u32 k1) {
#pragma unroll
	for (int i = 0; i < 10; i++) {
		const u64 p = 0xD2511F53ull * c[0], q = 0xCD9E8D57ull * c[2];
		const u32 c0 = (u32)(q >> 32) ^ c[1] ^ k0, c2 = (u32)(p >> 32) ^ c[3] ^ k1;
		c[0] = c0, c[1] = (u32)q, c[2] = c2, c[3] = (u32)p;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

INLINE double uniform_of(u32 lo, u32 hi) {
	return ((double)(((u64)hi << 32 | lo) >> 12) + 0.5) * 0x1p-52;
}

enum { DRAW_TEMPERATURE, DRAW_MIN_P, DRAW_SEED_LO, DRAW_SEED_HI, DRAW_CHOICE, DRAW_CHUNK = 4096 };

// draw_row is the row of the batch whose token number i is drawn, or -1.
INLINE i32 draw_row(const DrawArgs& a, i32 i, i32& span) {
	const i32 row = a.b.logit.at(i);
	if (row < 0) return -1;
	span = row < a.b.rows ? a.b.span.at(row) : -1;
	if (span < 0 || span >= a.b.spans) {
		fail(a.e, FAULT_LOGIT, i, row, span);
		return -1;
	}
	return row;
}

// One block per chunk of a row: grid (chunks, rows).
KERNEL(draw_parts, DrawArgs) {
	__shared__ Best bests[WARPS];
	const i32 i = blockIdx.y, tid = threadIdx.x, from = blockIdx.x * DRAW_CHUNK, to = min(a.vocab, from + DRAW_CHUNK);
	Best best = {0, -1, 0};
	i32 span = 0;
	const i32 row = draw_row(a, i, span);
	const i32* how = row < 0 ? 0 : a.how.row(span);
	const double temperature = row < 0 ? 0 : (double)__int_as_float(how[DRAW_TEMPERATURE]);
	if (temperature != 0) {
		const i32 top = a.stats.row(i)[0];
		const float* x = a.x.row(i);
		const double largest = top < 0 ? 0 : (double)x[top], least = (double)__int_as_float(how[DRAW_MIN_P]);
		for (i32 t = from + 2 * tid; t < to; t += 2 * THREADS) {
			u32 c[4] = {(u32)t / 2, (u32)(a.b.pos.at(row) + 1), (u32)how[DRAW_CHOICE], 0};
			philox(c, (u32)how[DRAW_SEED_LO], (u32)how[DRAW_SEED_HI]);
#pragma unroll
			for (int j = 0; j < 2; j++) {
				if (t + j >= to) break;
				const double w = exp_of(((double)x[t + j] - largest) / temperature);
				if (w > 0 && w >= least) offer(best, -log_of(uniform_of(c[2 * j], c[2 * j + 1])) / w, t + j);
			}
		}
	}
#pragma unroll
	for (int o = 16; o > 0; o >>= 1) {
		const double v = __shfl_down_sync(~0u, best.value, o);
		const i32 id = __shfl_down_sync(~0u, best.id, o);
		offer(best, v, id);
	}
	if (tid % 32 == 0) bests[tid / 32] = best;
	__syncthreads();
	if (tid != 0) return;
	for (int w = 1; w < WARPS; w++) offer(best, bests[w].value, bests[w].id);
	a.parts[(u64)i * a.chunks + blockIdx.x] = best;
}

// A thread per row, after draw_parts.
KERNEL(draw, DrawArgs) {
	const i32 i = blockIdx.x * THREADS + threadIdx.x;
	if (i >= a.b.logits) return;
	i32 span = 0;
	const i32 row = draw_row(a, i, span);
	i32 id = row < 0 ? -1 : a.stats.row(i)[0];
	if (row >= 0 && id >= 0 && a.how.row(span)[DRAW_TEMPERATURE] << 1 != 0) {
		Best best = {0, -1, 0};
		for (i32 c = 0; c < a.chunks; c++) {
			const Best p = a.parts[(u64)i * a.chunks + c];
			offer(best, p.value, p.id);
		}
		id = best.id;
	}
	a.dst.at(i) = id;
}

struct LimitArgs {
	Env e;
	Table left, most;
	View<i32> drafts;
	i32 width, n;
};
LAYOUT(LimitArgs, limit);

KERNEL(limit, LimitArgs) {
	const i32 s = blockIdx.x * THREADS + threadIdx.x;
	if (s >= a.n) return;
	const i32 most = a.most.at(s), left = a.left.at(s) - 1, from = most < left ? most : left;
	for (i32 j = from < 0 ? 0 : from; j < a.width; j++) a.drafts.row(s)[j] = -1;
}

struct HaltArgs {
	Env e;
	Table slots, left, kept, next;
	View<const i32> drafts, stops; // drafts.p may be null
	i32 width, each, n, pad;
};
LAYOUT(HaltArgs, halt);

KERNEL(halt, HaltArgs) {
	const i32 s = blockIdx.x * THREADS + threadIdx.x;
	if (s >= a.n || a.slots.at(s) < 0) return;
	const i32 kept = a.kept.at(s), rows = a.drafts.p ? a.width + 1 : 1;
	if (kept < 0 || kept > rows) {
		fail(a.e, FAULT_KEPT, s, kept, rows);
		return;
	}
	const i32 left = a.left.at(s) - kept;
	bool ends = left <= 0;
	for (i32 j = 0; j < kept; j++) {
		const i32 id = j < kept - 1 ? a.drafts.row(s)[j] : a.next.at(s);
		for (i32 i = 0; i < a.each; i++) ends |= id >= 0 && a.stops.row(s)[i] == id;
	}
	a.left.at(s) = left;
	if (ends) a.slots.at(s) = -1;
}
