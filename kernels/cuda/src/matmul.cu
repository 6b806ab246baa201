// dst = epilogue(norm(x) W^T): weights are the M operand of mma.sync m16n8k16,
// rows of x the N operand, and K is walked upwards in steps of 16 from zero with
// FP32 accumulators. That order is a property of the weight alone, so every tile
// of rows, and every later kernel with the same order, gives the same bits.
// A weight of 4 bits is multiplied as two BF16 numbers, one after the other in each
// step; the second is zero, and adds nothing, where BF16 holds the weight.

struct MatMulArgs {
	Env e;
	Any dst, res; // by dst_f32 and res_f32; res.p may be null
	View<u16> x;
	const u16* w;    // [n, k]; paired: [2n, k], gates first; or tiles of 4 bits
	const u32* meta; // of 4 bits: scales and zero points
	const float* nw; // null: no norm
	const float* bias; // null: none
	i32 rows, n, k;
	i32 act, dst_f32, res_f32;
	i32 group, centered;
	float eps;
	i32 scaled; // of 4 bits: columns that share a scale
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

// split4 dequantises the two weights of a byte. A weight has 12 significant bits,
// more than BF16 holds: hi is the nearest BF16 number, lo what is left, exactly.
INLINE void split4(u32 byte, u32 meta, u32& hi, u32& lo) {
	const float s = __uint_as_float(meta & 0xffff0000);
	const i32 zero = meta & 255;
	const float w0 = s * (float)((i32)(byte & 15) - zero), w1 = s * (float)((i32)(byte >> 4 & 15) - zero);
	const u16 h0 = f2bf(w0), h1 = f2bf(w1);
	hi = h0 | (u32)h1 << 16;
	lo = f2bf(w0 - bf2f(h0)) | (u32)f2bf(w1 - bf2f(h1)) << 16;
}

// Weights16 are 16 rows of a BF16 matrix, as a lane of a warp reads its fragments.
template <bool WIDE> struct Weights16 {
	enum { PARTS = 1, STEPS = 1 }; // products of a step of 16 columns, steps of a load
	const u16 *r0, *r1;
	i32 k, t;
	u32 f[4];
	__device__ __forceinline__ void open(const MatMulArgs& a, i32 tile, i32 half, i32 lane) {
		// Rows beyond the end are computed and not stored.
		const i32 last = (half + 1) * a.n - 1, row = tile * 16 + (lane >> 2) + half * a.n;
		k = a.k, t = lane & 3;
		r0 = a.w + (u64)min(row, last) * k;
		r1 = a.w + (u64)min(row + 8, last) * k;
	}
	__device__ __forceinline__ void load(i32 i) {
		f[0] = pair<WIDE>(r0, i + 2 * t, k);
		f[1] = pair<WIDE>(r1, i + 2 * t, k);
		f[2] = pair<WIDE>(r0, i + 8 + 2 * t, k);
		f[3] = pair<WIDE>(r1, i + 8 + 2 * t, k);
	}
	__device__ __forceinline__ void step(i32) {}
	__device__ __forceinline__ const u32* part(i32) const { return f; }
};

// Weights4 are a tile of a matrix of 4 bits, whose layout weight4.go describes.
struct Weights4 {
	enum { PARTS = 2, STEPS = 2 };
	const u64* q;
	const u32* meta;
	i32 scaled;
	u32 words[2], m[2], f[2][4];
	__device__ __forceinline__ void open(const MatMulArgs& a, i32 tile, i32 half, i32 lane) {
		const i32 tiles = (a.n + 15) / 16, at = min(tile, tiles - 1) + half * tiles;
		q = (const u64*)a.w + (u64)at * a.k + lane; // 32 lanes for each 32 columns
		meta = a.meta + (u64)at * 16 * (a.k / a.scaled) + (lane >> 2);
		scaled = a.scaled;
	}
	__device__ __forceinline__ void load(i32 i) {
		const u64 both = q[i];
		words[0] = (u32)both, words[1] = (u32)(both >> 32);
		m[0] = meta[i / scaled * 16], m[1] = meta[i / scaled * 16 + 8];
	}
	__device__ __forceinline__ void step(i32 s) {
#pragma unroll
		for (int c = 0; c < 4; c++) split4(words[c & 1] >> (16 * s + 8 * (c >> 1)), m[c & 1], f[0][c], f[1][c]);
	}
	__device__ __forceinline__ const u32* part(i32 p) const { return f[p]; }
};

// A block computes 64 outputs (16 a warp) of 8*NT rows. WIDE: K is a multiple of
// 16 and rows are aligned to 4 bytes. PAIRED: gate and up rows side by side. W: how
// weights are read.
template <int NT, bool WIDE, bool PAIRED, class W> INLINE void matmul_tile(const MatMulArgs& a) {
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
	W w[PAIRED + 1];
	for (int p = 0; p <= PAIRED; p++) w[p].open(a, blockIdx.x * 4 + warp, p, lane);
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
#pragma unroll (WIDE && NT == 1 && W::STEPS == 1 ? 4 : 1)
	for (i32 i0 = 0; i0 < k; i0 += 16 * W::STEPS) {
		for (int p = 0; p <= PAIRED; p++) w[p].load(i0);
#pragma unroll
		for (int s = 0; s < W::STEPS; s++) {
			const i32 i = i0 + 16 * s;
			for (int p = 0; p <= PAIRED; p++) w[p].step(s);
#pragma unroll
			for (int j = 0; j < NT; j++) {
				u32 b0 = load_x(j, i + 2 * t), b1 = load_x(j, i + 8 + 2 * t);
				for (int p = 0; p <= PAIRED; p++) {
#pragma unroll
					for (int part = 0; part < W::PARTS; part++) mma(acc[p][j], w[p].part(part), b0, b1);
				}
			}
		}
	}
#pragma unroll
	for (int j = 0; j < NT; j++) {
#pragma unroll
		for (int c = 0; c < 4; c++) {
			float y = acc[0][j][c];
			if (a.bias) y += a.bias[min(out + c / 2 * 8, a.n - 1)];
			y = PAIRED ? silu(y) * acc[PAIRED][j][c] : activate(a.act, y);
			store(a, row0 + j * 8 + 2 * t + c % 2, out + c / 2 * 8, y);
		}
	}
}

#define MATMUL(name, NT, WIDE, PAIRED) \
	KERNEL(name, MatMulArgs) { matmul_tile<NT, WIDE, PAIRED, Weights16<WIDE>>(a); }
#define MATMUL4(name, NT, WIDE, PAIRED) \
	KERNEL(name, MatMulArgs) { matmul_tile<NT, WIDE, PAIRED, Weights4>(a); }

MATMUL(matmul_8_narrow, 1, false, false)
MATMUL(matmul_8_narrow_paired, 1, false, true)
MATMUL(matmul_8_wide, 1, true, false)
MATMUL(matmul_8_wide_paired, 1, true, true)
MATMUL(matmul_32_narrow, 4, false, false)
MATMUL(matmul_32_narrow_paired, 4, false, true)
MATMUL(matmul_32_wide, 4, true, false)
MATMUL(matmul_32_wide_paired, 4, true, true)
MATMUL4(matmul4_8_narrow, 1, false, false)
MATMUL4(matmul4_8_narrow_paired, 1, false, true)
MATMUL4(matmul4_8_wide, 1, true, false)
MATMUL4(matmul4_8_wide_paired, 1, true, true)
MATMUL4(matmul4_32_narrow, 4, false, false)
MATMUL4(matmul4_32_narrow_paired, 4, false, true)
MATMUL4(matmul4_32_wide, 4, true, false)
MATMUL4(matmul4_32_wide_paired, 4, true, true)
