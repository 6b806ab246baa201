#line 2 "common.cuh"
// Types and device functions shared by all kernels. Prepended to every source
// by the compiler of kernels/cuda; no header of CUDA is needed.
//
// The arithmetic is written out: the sources are compiled with --fmad=false, and
// a fused multiply-add is one only where fmaf stands.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

#define INLINE static __device__ __forceinline__
// KERNEL_OF is a kernel of blocks of so many threads. Kernels are launched early
// (LaunchEarly in Go): the body begins when what kernels in front wrote is there, and
// the next kernel's blocks may take their places once all of this one's have.
#define KERNEL_OF(threads, name, Args)                                                                    \
	INLINE void name##_body(const Args& a);                                                               \
	extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args a) {          \
		let_next_kernel_start();                                                                          \
		after_kernel_in_front();                                                                          \
		name##_body(a);                                                                                   \
	}                                                                                                     \
	INLINE void name##_body(const Args& a)
#define KERNEL(name, Args) KERNEL_OF(THREADS, name, Args)

// The sizes of argument structs as Go has them; -DSIZE_X=n for each kernel X.
#define LAYOUT(Args, name) static_assert(sizeof(Args) == SIZE_##name, "layout of " #Args)

enum { THREADS = 128, WARPS = 4 };
enum { PAGE = 64, WINDOW = 64, SPLIT = 512 };
enum { IDENTITY, SILU, SIGMOID, SWIGLU };

// Faults: what a kernel found wrong in tables that only the device can see. The
// first one is kept in host memory and becomes the queue's error.
enum {
	FAULT_INDEX = 1, FAULT_SLOT, FAULT_ROWS, FAULT_PARENT, FAULT_PAGE, FAULT_ROPE, FAULT_KEPT,
	FAULT_WHOLE, FAULT_LOGIT, FAULT_START, FAULT_WINDOW, FAULT_SAVED, FAULT_TREE, FAULT_POS, FAULT_MASK
};
struct Fault { volatile i32 code, op, at, x, y; };

// Env begins every argument struct.
struct Env { Fault* fault; u64* work; i32 op, pad; };


// Counters behind Env.work; the last one is taken by the first fault.
enum { WORK_ATTEND_ROWS, WORK_KV_TOKENS, WORK_DELTA_ROWS, WORK_FAULTED };

#define INF __int_as_float(0x7f800000)

INLINE void fail(const Env& e, i32 code, i32 at, i32 x, i32 y) {
	if (atomicCAS(&e.work[WORK_FAULTED], 0ull, 1ull) != 0) return;
	e.fault->op = e.op;
	e.fault->at = at;
	e.fault->x = x;
	e.fault->y = y;
	__threadfence_system();
	e.fault->code = code;
}

// after_kernel_in_front waits until what kernels in front wrote is there. A kernel that
// is launched early (LaunchEarly in Go) calls it before it reads or writes anything that
// they write or read.
INLINE void after_kernel_in_front() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// let_next_kernel_start allows a kernel that is launched early to start once all blocks
// of this one have.
INLINE void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// View is a buffer view: rows ld elements apart.
template <class T> struct View {
	T* p;
	i32 ld, rows;
	__device__ __forceinline__ T* row(i32 i) const { return p + (u64)i * ld; }
	__device__ __forceinline__ T& at(i32 i) const { return p[(u64)i * ld]; }
};
typedef View<i32> Table;

// Any is a view of BF16 or F32.
struct Any { void* p; i32 ld, rows; };

// Batch holds the tables of a batch.
struct Batch {
	Table seq, start, len, off;
	Table token, pos, parent, span;
	Table logit;
	i32 spans, rows, logits, max_len;
};

// Span is a span of a batch as one row of it sees it.
struct Span { i32 index, slot, start, len, off, row, pos; };

// span_at reads span s. It returns false if the span is idle or its entries are
// out of range; the latter is a fault.
INLINE bool span_at(const Env& e, const Batch& b, i32 slots, i32 s, Span& o) {
	o.index = s;
	o.len = b.len.at(s), o.slot = b.seq.at(s), o.start = b.start.at(s), o.off = b.off.at(s);
	o.row = 0;
	o.pos = o.start;
	if (o.len == 0) return false;
	if (o.slot < 0 || o.slot >= slots) {
		fail(e, FAULT_SLOT, s, o.slot, slots);
		return false;
	}
	if (o.len < 0 || o.len > b.max_len || o.start < 0 || o.off < 0 || o.off > b.rows - o.len) {
		fail(e, FAULT_ROWS, s, o.off, o.len);
		return false;
	}
	return true;
}

// parent_of returns the parent of row i of a span, or -1; a parent that is not
// an earlier row is a fault and counts as -1.
INLINE i32 parent_of(const Env& e, const Batch& b, const Span& s, i32 i) {
	i32 p = b.parent.at(s.off + i);
	if (p < -1 || p >= i) {
		fail(e, FAULT_PARENT, s.off + i, p, i);
		return -1;
	}
	return p;
}

// Row is what the tables say of a row, all read at once: also the position in front of
// it, which is its parent's in a chain.
struct Row {
	i32 span, parent, pos, before;
	__device__ __forceinline__ Row(const Batch& b, i32 r) : span(b.span.at(r)), parent(b.parent.at(r)), pos(b.pos.at(r)), before(b.pos.at(max(r - 1, 0))) {}
};

// row_of moves o to its row i; false, and a fault, if the row does not say that
// it is the span's or is not at the position behind its parent's.
INLINE bool row_of(const Env& e, const Batch& b, Span& o, i32 i, const Row& row) {
	const i32 r = o.off + i;
	i32 p = row.parent;
	if (p < -1 || p >= i) {
		fail(e, FAULT_PARENT, r, p, i);
		p = -1;
	}
	o.row = i;
	o.pos = row.pos;
	if (row.span != o.index) {
		fail(e, FAULT_ROWS, o.index, o.off, o.len);
		return false;
	}
	const i32 parent = p < 0 ? o.start - 1 : p == i - 1 ? row.before : b.pos.at(o.off + p);
	if (o.pos != parent + 1 || o.pos > o.start + i) {
		fail(e, FAULT_POS, r, o.pos, o.start);
		return false;
	}
	return true;
}

// span_of reads the span of row r; false if the row is idle.
INLINE bool span_of(const Env& e, const Batch& b, i32 slots, i32 r, Span& o) {
	const Row row(b, r);
	const i32 s = row.span;
	if (s < 0) return false;
	if (s >= b.spans || !span_at(e, b, slots, s, o) || r < o.off || r >= o.off + o.len) {
		fail(e, FAULT_ROWS, s, r, 1);
		return false;
	}
	return row_of(e, b, o, r - o.off, row);
}

// is_tree reports to all threads of the block whether a span branches. Spans of
// more than WINDOW rows are chains.
INLINE bool is_tree(const Env& e, const Batch& b, const Span& s) {
	if (s.len == 1) return false;
	bool odd = false;
	if (s.len <= WINDOW && (i32)threadIdx.x < s.len) odd = parent_of(e, b, s, threadIdx.x) != (i32)threadIdx.x - 1;
	return __syncthreads_or(odd);
}

INLINE float bf2f(u16 h) { return __uint_as_float((u32)h << 16); }

// f2bf rounds to nearest even; a NaN stays one.
INLINE u16 f2bf(float f) {
	u32 u = __float_as_uint(f);
	if ((u & 0x7fffffffu) > 0x7f800000u) return (u16)(u >> 16 | 0x40u);
	return (u16)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
INLINE float silu(float x) { return x / (1.0f + expf(-x)); }
INLINE float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

INLINE float activate(i32 act, float x) {
	if (act != SILU && act != SIGMOID) return x;
	return (act == SILU ? x : 1.0f) / (1.0f + expf(-x));
}

// Reductions are fixed trees: over the lanes of a warp by xor, over a block of
// THREADS by halving. The result reaches every thread.
INLINE float warp_sum(float v) {
#pragma unroll
	for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
	return v;
}

INLINE float warp_max(float v) {
#pragma unroll
	for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
	return v;
}

INLINE float block_sum(float v, float* red) {
	__syncthreads();
	red[threadIdx.x] = v;
	for (int o = THREADS / 2; o > 0; o >>= 1) {
		__syncthreads();
		if (threadIdx.x < o) red[threadIdx.x] += red[threadIdx.x + o];
	}
	__syncthreads();
	return red[0];
}

INLINE float block_max(float v, float* red) {
	__syncthreads();
	red[threadIdx.x] = v;
	for (int o = THREADS / 2; o > 0; o >>= 1) {
		__syncthreads();
		if (threadIdx.x < o) red[threadIdx.x] = fmaxf(red[threadIdx.x], red[threadIdx.x + o]);
	}
	__syncthreads();
	return red[0];
}

// rms_scale returns 1/sqrt(mean(x^2) + eps) of n elements to a whole warp.
template <class Load> INLINE float rms_scale(i32 n, float eps, i32 lane, Load x) {
	float s = 0;
#pragma unroll 8
	for (i32 i = lane; i < n; i += 32) {
		float v = x(i);
		s = fmaf(v, v, s);
	}
	return 1.0f / sqrtf(warp_sum(s) / (float)n + eps);
}

// norm_apply is one element of a norm: w plain, or 1 + w if centred.
INLINE float norm_apply(float x, float scale, float w, i32 centered) {
	return x * scale * (centered ? 1.0f + w : w);
}

// at_once reports whether a row can be reached 16 bytes at a time.
INLINE bool at_once(const void* p) { return ((u64)p & 15) == 0; }

// copy_row copies n units of 16 bits by so many threads, of which this is one; they are
// zeros where from is null. Loads come before stores, so that they wait together.
INLINE void copy_row(u16* to, const u16* from, i32 n, i32 thread, i32 threads) {
	enum { DEEP = 4 };
	const i32 whole = at_once(to) && at_once(from) ? n / 8 : 0;
	for (i32 i = thread; i < whole; i += DEEP * threads) {
		uint4 v[DEEP];
#pragma unroll
		for (int j = 0; j < DEEP; j++) v[j] = from && i + j * threads < whole ? ((const uint4*)from)[i + j * threads] : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (int j = 0; j < DEEP; j++)
			if (i + j * threads < whole) ((uint4*)to)[i + j * threads] = v[j];
	}
	for (i32 i = 8 * whole + thread; i < n; i += threads) to[i] = from ? from[i] : 0;
}

INLINE u32 shared_at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// fetch starts the copy of 16 bytes to shared memory; zeros where there is nothing.
INLINE void fetch(void* to, const void* from, bool there) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}

INLINE void commit_loads() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> INLINE void await_loads() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
