// dst = epilogue(norm(x) W^T): weights are the M operand of mma.sync m16n8k16,
// rows of x the N operand, and K is walked upwards in steps of 16 from zero with
// FP32 accumulators. That order is a property of the weight alone, so every tile
// of rows, and every later kernel with the same order, gives the same bits.

struct MatMulArgs {
	Env e;
	Any dst, res; // by dst_f32 and res_f32; res.p may be null
	View<u16> x;
	const u16* w;    // [n, k]; paired: [2n, k], gates first
	const float* nw; // null: no norm
	i32 rows, n, k;
	i32 act, dst_f32, res_f32;
	i32 group, centered;
	float eps;
	i32 pad;
};
LAYOUT(MatMulArgs, matmul);

INLINE void mma(float* c, const u32* a, u32 b0, u32 b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// pair loads elements i and i+1 of a row of k; beyond the row they are zero.
template <bool WIDE> INLINE u32 pair(const u16* p, i32 i, i32 k) {
	if (WIDE) return *(const u32*)(p + i);
	u32 lo = i < k ? p[i] : 0, hi = i + 1 < k ? p[i + 1] : 0;
	return lo | hi << 16;
}

INLINE float load(const Any& v, i32 f32, i32 r, i32 c) {
	u64 at = (u64)r * v.ld + c;
	return f32 ? ((const float*)v.p)[at] : bf2f(((const u16*)v.p)[at]);
}

INLINE void store(const MatMulArgs& a, i32 r, i32 c, float y) {
	if (r >= a.rows || c >= a.n) return;
	if (a.res.p) y += load(a.res, a.res_f32, r, c);
	u64 at = (u64)r * a.dst.ld + c;
	if (a.dst_f32) ((float*)a.dst.p)[at] = y;
	else ((u16*)a.dst.p)[at] = f2bf(y);
}

// A block computes 64 outputs (16 a warp) of 8*NT rows. WIDE: K is a multiple of
// 16 and rows are aligned to 4 bytes. PAIRED: gate and up rows side by side.
template <int NT, bool WIDE, bool PAIRED> INLINE void matmul_tile(const MatMulArgs& a) {
	extern __shared__ float scale[]; // [8*NT, groups]
	const i32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
	const i32 row0 = blockIdx.y * 8 * NT, k = a.k;
	const i32 groups = a.nw ? k / a.group : 1;
	if (a.nw) {
		for (i32 j = warp; j < 8 * NT * groups; j += WARPS) {
			i32 r = row0 + j / groups;
			if (r >= a.rows) break;
			const u16* x = a.x.row(r) + j % groups * a.group;
			float s = rms_scale(a.group, a.eps, lane, [=](i32 i) { return bf2f(x[i]); });
			if (lane == 0) scale[j] = s;
		}
		__syncthreads();
	}
	const i32 out = blockIdx.x * 64 + warp * 16 + g; // and out + 8
	const i32 last = PAIRED ? 2 * a.n - 1 : a.n - 1;
	const u16* w[2 * (PAIRED + 1)];
	for (int i = 0; i < 2 * (PAIRED + 1); i++) {
		i32 r = out + i % 2 * 8 + i / 2 * a.n;
		w[i] = a.w + (u64)min(r, last) * k; // rows beyond the end are computed and not stored
	}
	const u16* x[NT];
	bool live[NT];
	for (int j = 0; j < NT; j++) {
		i32 r = row0 + j * 8 + g;
		live[j] = r < a.rows;
		x[j] = a.x.row(live[j] ? r : 0);
	}
	auto load_x = [&](int j, i32 i) -> u32 {
		u32 v = live[j] ? pair<WIDE>(x[j], i, k) : 0;
		if (!a.nw || (!WIDE && i >= k)) return v;
		const float* s = scale + (j * 8 + g) * groups;
		const i32 i1 = WIDE ? i + 1 : min(i + 1, k - 1);
		i32 g0 = 0, g1 = 0;
		if (groups > 1) g0 = i / a.group, g1 = i1 / a.group;
		float lo = norm_apply(bf2f(v & 0xffff), s[g0], a.nw[i - g0 * a.group], a.centered);
		float hi = norm_apply(bf2f(v >> 16), s[g1], a.nw[i1 - g1 * a.group], a.centered);
		if (!WIDE && i + 1 >= k) hi = 0;
		return live[j] ? f2bf(lo) | (u32)f2bf(hi) << 16 : 0;
	};
	float acc[PAIRED + 1][NT][4] = {};
#pragma unroll (WIDE && NT == 1 ? 4 : 1)
	for (i32 i = 0; i < k; i += 16) {
		u32 f[PAIRED + 1][4];
		for (int p = 0; p <= PAIRED; p++) {
			f[p][0] = pair<WIDE>(w[2 * p], i + 2 * t, k);
			f[p][1] = pair<WIDE>(w[2 * p + 1], i + 2 * t, k);
			f[p][2] = pair<WIDE>(w[2 * p], i + 8 + 2 * t, k);
			f[p][3] = pair<WIDE>(w[2 * p + 1], i + 8 + 2 * t, k);
		}
#pragma unroll
		for (int j = 0; j < NT; j++) {
			u32 b0 = load_x(j, i + 2 * t), b1 = load_x(j, i + 8 + 2 * t);
			for (int p = 0; p <= PAIRED; p++) mma(acc[p][j], f[p], b0, b1);
		}
	}
#pragma unroll
	for (int j = 0; j < NT; j++) {
#pragma unroll
		for (int c = 0; c < 4; c++) {
			float y = acc[0][j][c];
			y = PAIRED ? silu(y) * acc[PAIRED][j][c] : activate(a.act, y);
			store(a, row0 + j * 8 + 2 * t + c % 2, out + c / 2 * 8, y);
		}
	}
}

#define MATMUL(name, NT, WIDE, PAIRED) \
	KERNEL(name, MatMulArgs) { matmul_tile<NT, WIDE, PAIRED>(a); }

MATMUL(matmul_8_narrow, 1, false, false)
MATMUL(matmul_8_narrow_paired, 1, false, true)
MATMUL(matmul_8_wide, 1, true, false)
MATMUL(matmul_8_wide_paired, 1, true, true)
MATMUL(matmul_32_narrow, 4, false, false)
MATMUL(matmul_32_narrow_paired, 4, false, true)
MATMUL(matmul_32_wide, 4, true, false)
MATMUL(matmul_32_wide_paired, 4, true, true)
