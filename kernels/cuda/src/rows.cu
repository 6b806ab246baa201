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
	const u16* src = a.table + (u64)id * a.cols;
	u16* dst = a.dst.row(r);
	for (i32 i = threadIdx.x; i < a.cols; i += THREADS) dst[i] = src[i];
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
	if (to < 0) return;
	u16* dst = a.dst.row(to);
	if (from < 0) {
		for (i32 i = threadIdx.x; i < a.cols; i += THREADS) dst[i] = 0;
		return;
	}
	const u16* src = a.src.row(from);
	for (i32 i = threadIdx.x; i < a.cols; i += THREADS) dst[i] = src[i];
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

// One warp per group of a row: grid (rows, groups/4).
KERNEL(norm_rows, NormArgs) {
	i32 r = blockIdx.x, lane = threadIdx.x & 31, g = blockIdx.y * WARPS + (threadIdx.x >> 5);
	i32 n = a.group, c0 = g * n;
	let_next_kernel_start();
	if (c0 >= a.cols) return;
	u64 at = (u64)r * a.x.ld + c0;
	const float* xf = (const float*)a.x.p + at;
	const u16* xh = (const u16*)a.x.p + at;
	bool f32 = a.f32;
	auto in = [=](i32 i) { return f32 ? xf[i] : bf2f(xh[i]); };
	u16* dst = a.dst.row(r) + c0;
	if (!a.w) {
		for (i32 i = lane; i < n; i += 32) dst[i] = f2bf(in(i));
		return;
	}
	if (a.bias) {
		float sum = 0;
		for (i32 i = lane; i < n; i += 32) sum += in(i);
		const float mean = warp_sum(sum) / (float)n;
		const float s = rms_scale(n, a.eps, lane, [=](i32 i) { return in(i) - mean; });
		for (i32 i = lane; i < n; i += 32) dst[i] = f2bf((in(i) - mean) * s * a.w[i] + a.bias[i]);
		return;
	}
	float s = rms_scale(n, a.eps, lane, in);
	const float* w = a.w + (a.each ? c0 : 0);
#pragma unroll 8
	for (i32 i = lane; i < n; i += 32) dst[i] = f2bf(norm_apply(in(i), s, w[i], a.centered));
}
