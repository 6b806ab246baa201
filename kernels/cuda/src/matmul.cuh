#line 2 "matmul.cuh"
// What all forms of the matrix product share: the rows of a grouped product, the
// epilogue, and the arguments that both need.

struct Chunk { i32 expert, start, count, pad; }; // rows of a grouped product that share an expert

// Product is a product dst = epilogue(x W^T) as every form of it sees it.
struct Product {
	Any dst, res; // by dst_f32 and res_f32; res.p may be null
	const float* bias; // null: none
	const i32* order; // grouped: which pair stands at a place; null: not grouped
	const Chunk* chunks; // grouped: *count of them
	const i32* count;
	i32 rows, n, k; // n: outputs of a row (paired: half of the weight's)
	i32 act, dst_f32, res_f32;
	i32 paired, blocks; // blocks: matrices on a diagonal; else 1
	i32 each, spread; // grouped: row of x is pair / each; of dst, pair / spread
	i32 fours, pad; // outputs of dst and res can be reached four at a time; n is a multiple
};

INLINE void mma(float* c, const u32* a, u32 b0, u32 b1) {
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

INLINE float load1(const Any& v, i32 f32, u64 at) { return f32 ? ((const float*)v.p)[at] : bf2f(((const u16*)v.p)[at]); }

// put1 finishes one output of a row.
INLINE void put1(const Product& p, i32 r, i32 c, float y) {
	if (p.res.p) y += load1(p.res, p.res_f32, (u64)r * p.res.ld + c);
	const u64 at = (u64)r * p.dst.ld + c;
	if (p.dst_f32) ((float*)p.dst.p)[at] = y;
	else ((u16*)p.dst.p)[at] = f2bf(y);
}

// put4 finishes outputs c to c+3 of a row where they can be reached at once.
INLINE void put4(const Product& p, i32 r, i32 c, float4 y) {
	if (p.res.p) {
		const u64 at = (u64)r * p.res.ld + c;
		if (p.res_f32) {
			const float4 v = *(const float4*)((const float*)p.res.p + at);
			y.x += v.x, y.y += v.y, y.z += v.z, y.w += v.w;
		} else {
			const uint2 v = *(const uint2*)((const u16*)p.res.p + at);
			y.x += bf2f((u16)v.x), y.y += bf2f((u16)(v.x >> 16)), y.z += bf2f((u16)v.y), y.w += bf2f((u16)(v.y >> 16));
		}
	}
	const u64 at = (u64)r * p.dst.ld + c;
	if (p.dst_f32) *(float4*)((float*)p.dst.p + at) = y;
	else *(uint2*)((u16*)p.dst.p + at) = make_uint2(f2bf(y.x) | (u32)f2bf(y.y) << 16, f2bf(y.z) | (u32)f2bf(y.w) << 16);
}

// put2 finishes outputs c and c+1 of a row, of which n > 0 are there; c is even.
INLINE void put2(const Product& p, i32 r, i32 c, i32 n, float y0, float y1) {
	if (!p.fours || n < 2) {
		put1(p, r, c, y0);
		if (n > 1) put1(p, r, c + 1, y1);
		return;
	}
	if (p.res.p) {
		const u64 at = (u64)r * p.res.ld + c;
		if (p.res_f32) {
			const float2 v = *(const float2*)((const float*)p.res.p + at);
			y0 += v.x, y1 += v.y;
		} else {
			const u32 v = *(const u32*)((const u16*)p.res.p + at);
			y0 += bf2f((u16)v), y1 += bf2f((u16)(v >> 16));
		}
	}
	const u64 at = (u64)r * p.dst.ld + c;
	if (p.dst_f32) *(float2*)((float*)p.dst.p + at) = make_float2(y0, y1);
	else *(u32*)((u16*)p.dst.p + at) = f2bf(y0) | (u32)f2bf(y1) << 16;
}

// surround applies bias and activation to the product y of column c.
INLINE float surround(const Product& p, i32 c, float y) {
	if (p.bias) y += p.bias[min(c, p.n - 1)];
	return activate(p.act, y);
}
