// Operations on rows: gathering, copying, norms.

struct EmbedArgs {
	Env e;
	View<u16> dst;
	Table ids;
	const u16* table;
	i32 cols, table_rows;
};
LAYOUT(EmbedArgs, embed);

// One block per row.
KERNEL(embed, EmbedArgs) {
	i32 r = blockIdx.x, id = a.ids.at(r);
	if (id < 0 || id >= a.table_rows) {
		fail(a.e, FAULT_INDEX, r, id, a.table_rows);
		return;
	}
	copy_row(a.dst.row(r), a.table + (u64)id * a.cols, a.cols, threadIdx.x, THREADS);
}

enum { MOVE_COPY, MOVE_GATHER, MOVE_SCATTER };

struct MoveArgs {
	Env e;
	View<u16> dst, src; // in units of 16 bits
	Table index;
	i32 cols, mode;
};
LAYOUT(MoveArgs, move_rows);

// One block per row of dst (copy, gather) or of src (scatter).
KERNEL(move_rows, MoveArgs) {
	i32 r = blockIdx.x, from = r, to = r;
	if (a.mode != MOVE_COPY) {
		i32 n = a.mode == MOVE_GATHER ? a.src.rows : a.dst.rows, x = a.index.at(r);
		if (x >= n) {
			fail(a.e, FAULT_INDEX, r, x, n);
			return;
		}
		if (a.mode == MOVE_GATHER) from = x;
		else to = x;
	}
	if (to >= 0) copy_row(a.dst.row(to), from < 0 ? nullptr : a.src.row(from), a.cols, threadIdx.x, THREADS);
}

struct NormArgs {
	Env e;
	View<u16> dst;
	Any x; // by f32
	const float *w, *bias; // a bias: a layer norm
	float eps;
	i32 cols, group, centered, f32;
	i32 each; // a weight for every column, not one group's
};
LAYOUT(NormArgs, norm_rows);

// A group of up to NORM_WARP columns is normed by a warp, a wider one by a block. Either
// way threads take pieces of 8 columns in turns, and their sums are added by a tree over
// lanes, then warps upwards.
enum { NORM_WARP = 512, PIECE = 8 };

// Group is a group of a row as the threads that norm it see it.
struct Group {
	const u16* xh; // one of the two
	const float* xf;
	u16* dst;
	i32 n, thread, threads;
	bool at_once;
	__device__ __forceinline__ void load(float* v, i32 i) const {
		if (xf) return floats(v, xf, i);
		if (!at_once) {
#pragma unroll
			for (int j = 0; j < PIECE; j++) v[j] = i + j < n ? bf2f(xh[i + j]) : 0.0f;
			return;
		}
		const uint4 h = *(const uint4*)(xh + i);
		const u32 u[4] = {h.x, h.y, h.z, h.w};
#pragma unroll
		for (int j = 0; j < 4; j++) v[2 * j] = bf2f((u16)u[j]), v[2 * j + 1] = bf2f((u16)(u[j] >> 16));
	}
	__device__ __forceinline__ void floats(float* v, const float* p, i32 i) const {
#pragma unroll
		for (int j = 0; j < PIECE; j += 4) {
			if (at_once) {
				const float4 f = *(const float4*)(p + i + j);
				v[j] = f.x, v[j + 1] = f.y, v[j + 2] = f.z, v[j + 3] = f.w;
			} else {
#pragma unroll
				for (int q = j; q < j + 4; q++) v[q] = i + q < n ? p[i + q] : 0.0f;
			}
		}
	}
	__device__ __forceinline__ void store(const u16* y, i32 i) const {
		if (at_once) {
			*(uint4*)(dst + i) = make_uint4(y[0] | (u32)y[1] << 16, y[2] | (u32)y[3] << 16, y[4] | (u32)y[5] << 16, y[6] | (u32)y[7] << 16);
			return;
		}
#pragma unroll
		for (int j = 0; j < PIECE; j++)
			if (i + j < n) dst[i + j] = y[j];
	}
	// sum adds f of all elements; red has a place for each warp.
	template <class F> __device__ __forceinline__ float sum(float* red, F f) const {
		float s = 0;
#pragma unroll 4
		for (i32 i = thread * PIECE; i < n; i += threads * PIECE) {
			float v[PIECE];
			load(v, i);
#pragma unroll
			for (int j = 0; j < PIECE; j++)
				if (at_once || i + j < n) s = f(s, v[j]);
		}
		s = warp_sum(s);
		if (threads == 32) return s;
		if (thread % 32 == 0) red[thread / 32] = s;
		__syncthreads();
		s = red[0];
#pragma unroll
		for (int i = 1; i < WARPS; i++) s += red[i];
		return s;
	}
	// put writes f of all elements, their weights and what is added; null: zeros.
	template <class F> __device__ __forceinline__ void put(const float* w, const float* bias, F f) const {
#pragma unroll 2
		for (i32 i = thread * PIECE; i < n; i += threads * PIECE) {
			float v[PIECE], by[PIECE] = {}, plus[PIECE] = {};
			u16 y[PIECE];
			load(v, i);
			if (w) floats(by, w, i);
			if (bias) floats(plus, bias, i);
#pragma unroll
			for (int j = 0; j < PIECE; j++) y[j] = f2bf(f(v[j], by[j], plus[j]));
			store(y, i);
		}
	}
};

// Grid (rows, groups / WARPS) of groups of up to NORM_WARP, else (rows, groups).
KERNEL(norm_rows, NormArgs) {
	__shared__ float red[2][WARPS];
	const i32 r = blockIdx.x, n = a.group, warp = threadIdx.x >> 5;
	const bool whole = n > NORM_WARP;
	const i32 c0 = (whole ? blockIdx.y : blockIdx.y * WARPS + warp) * n;
	if (c0 >= a.cols) return;
	const u64 at = (u64)r * a.x.ld + c0;
	const float *w = a.w ? a.w + (a.each ? c0 : 0) : nullptr, *bias = a.bias;
	Group g;
	g.xf = a.f32 ? (const float*)a.x.p + at : nullptr;
	g.xh = (const u16*)a.x.p + at;
	g.dst = a.dst.row(r) + c0;
	g.n = n, g.thread = whole ? threadIdx.x : threadIdx.x & 31, g.threads = whole ? THREADS : 32;
	g.at_once = n % PIECE == 0 && at_once(g.dst) && at_once(a.f32 ? (const void*)g.xf : g.xh) && at_once(w) && at_once(bias);
	if (!w) {
		g.put(nullptr, nullptr, [](float x, float, float) { return x; });
		return;
	}
	const i32 centered = a.centered;
	float mean = 0;
	if (bias) mean = g.sum(red[0], [](float s, float x) { return s + x; }) / (float)n;
	const float squares = g.sum(red[1], [=](float s, float x) { return fmaf(x - mean, x - mean, s); });
	const float scale = 1.0f / sqrtf(squares / (float)n + a.eps);
	if (bias) g.put(w, bias, [=](float x, float by, float plus) { return (x - mean) * scale * by + plus; });
	else g.put(w, nullptr, [=](float x, float by, float) { return norm_apply(x, scale, by, centered); });
}
