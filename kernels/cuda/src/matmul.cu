// The matrix product for every generation: weights are the M operand of mma.sync
// m16n8k16, rows of x the N operand, and K, filled up with zeros to a multiple of 64,
// is walked upwards in steps of 16 from zero with FP32 accumulators. That order is a
// property of the weight alone, so every tile of rows, and every other kernel with the
// same order (matmul_hopper.cu), gives the same bits.
// A weight of 4 bits is multiplied as two BF16 numbers, one after the other in each
// step; the second is zero, and adds nothing, where BF16 holds the weight.

struct MatMulArgs {
	Env e;
	Product p;
	View<u16> x;
	const u16* w;    // [n, k]; paired: [2n, k], gates first; or tiles of 4 bits
	const u32* meta; // of 4 bits: scales and zero points
	i32 scaled, pad; // of 4 bits: columns that share a scale
};
LAYOUT(MatMulArgs, matmul);

// pair loads elements i and i+1 of a row of k; beyond the row they are zero.
template <bool WIDE> INLINE u32 pair(const u16* p, i32 i, i32 k) {
	if (WIDE) return i < k ? *(const u32*)(p + i) : 0;
	u32 lo = i < k ? p[i] : 0, hi = i + 1 < k ? p[i + 1] : 0;
	return lo | hi << 16;
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
	__device__ __forceinline__ void open(const MatMulArgs& a, u64 first, i32 tile, i32 half, i32 lane) {
		// Rows beyond the end are computed and not stored.
		const i32 last = (half + 1) * a.p.n - 1, row = tile * 16 + (lane >> 2) + half * a.p.n;
		k = a.p.k, t = lane & 3;
		r0 = a.w + (first + min(row, last)) * k;
		r1 = a.w + (first + min(row + 8, last)) * k;
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
	__device__ __forceinline__ void open(const MatMulArgs& a, u64, i32 tile, i32 half, i32 lane) {
		const i32 tiles = (a.p.n + 15) / 16, at = min(tile, tiles - 1) + half * tiles;
		q = (const u64*)a.w + (u64)at * a.p.k + lane; // 32 lanes for each 32 columns
		meta = a.meta + (u64)at * 16 * (a.p.k / a.scaled) + (lane >> 2);
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

// A block computes 64 outputs (16 a warp) of 8*NT rows. WIDE: K is even and rows are
// aligned to 4 bytes. PAIRED: gate and up rows side by side. W: how weights are read.
template <int NT, bool WIDE, bool PAIRED, class W> INLINE void matmul_tile(const MatMulArgs& a) {
	const Product& p = a.p;
	const i32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
	const i32 per = (p.n + 63) / 64, block = blockIdx.x / per, k = p.k;
	i32 row0 = blockIdx.y * 8 * NT, rows = min(8 * NT, p.rows - row0);
	u64 first = (u64)block * p.n;
	if (p.order) {
		if ((i32)blockIdx.y >= *p.count) return;
		const Chunk c = p.chunks[blockIdx.y];
		row0 = c.start, rows = c.count, first = (u64)c.expert * p.n * (1 + PAIRED);
	}
	const i32 tile = blockIdx.x % per * 4 + warp, out = tile * 16 + g; // and out + 8
	W w[PAIRED + 1];
	for (int h = 0; h <= PAIRED; h++) w[h].open(a, first, tile, h, lane);
	const u16* x[NT];
	bool live[NT];
	for (int j = 0; j < NT; j++) {
		const i32 in = j * 8 + g;
		live[j] = in < rows;
		const i32 at = row0 + (live[j] ? in : 0);
		x[j] = a.x.row(p.order ? p.order[at] / p.each : at) + block * k;
	}
	float acc[PAIRED + 1][NT][4] = {};
#pragma unroll (WIDE && NT == 1 && W::STEPS == 1 ? 4 : 1)
	for (i32 i0 = 0; i0 < (k + 63) / 64 * 64; i0 += 16 * W::STEPS) {
		if (W::STEPS > 1 && i0 >= k) break; // of 4 bits, K is a multiple of 32: what is left adds zeros
		for (int h = 0; h <= PAIRED; h++) w[h].load(i0);
#pragma unroll
		for (int s = 0; s < W::STEPS; s++) {
			const i32 i = i0 + 16 * s;
			for (int h = 0; h <= PAIRED; h++) w[h].step(s);
#pragma unroll
			for (int j = 0; j < NT; j++) {
				const u32 b0 = live[j] ? pair<WIDE>(x[j], i + 2 * t, k) : 0, b1 = live[j] ? pair<WIDE>(x[j], i + 8 + 2 * t, k) : 0;
				for (int h = 0; h <= PAIRED; h++) {
#pragma unroll
					for (int part = 0; part < W::PARTS; part++) mma(acc[h][j], w[h].part(part), b0, b1);
				}
			}
		}
	}
#pragma unroll
	for (int j = 0; j < NT; j++) {
#pragma unroll
		for (int c = 0; c < 4; c++) {
			const i32 in = j * 8 + 2 * t + c % 2, o = out + c / 2 * 8;
			if (in >= rows || o >= p.n) continue;
			const float y = PAIRED ? silu(acc[0][j][c]) * acc[PAIRED][j][c] : surround(p, o, acc[0][j][c]);
			put1(p, p.order ? p.order[row0 + in] / p.spread : row0 + in, block * p.n + o, y);
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
