// Measures of the device itself.

struct ReadArgs {
	Env e;
	const uint4* p;
	u64 n;
	u32* sink;
};
LAYOUT(ReadArgs, bench_read);

// bench_read reads n pieces of 16 bytes: the most that a kernel can get from memory.
KERNEL(bench_read, ReadArgs) {
	enum { DEEP = 8 };
	u32 sum = 0;
	const u64 all = (u64)gridDim.x * THREADS;
	for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < a.n; i += all * DEEP) {
		uint4 v[DEEP];
#pragma unroll
		for (int j = 0; j < DEEP; j++) v[j] = i + j * all < a.n ? __ldcs(a.p + i + j * all) : make_uint4(0, 0, 0, 0);
#pragma unroll
		for (int j = 0; j < DEEP; j++) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
	}
	if (sum == 0x12345678) *a.sink = sum;
}
