// SPDX-License-Identifier: Apache-2.0
// Device code as an extern library has it, without HIP's headers: externs, an init-written global, and what clang adds.
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))

struct State {
  int rank;
  float scale;
  double *heap[3];
};
typedef float float4_t __attribute__((ext_vector_type(4)));

__device__ State state;
__constant__ int table[16];
extern __device__ int elsewhere;
static __device__ int hidden_counter;
__device__ int other(int);
template <typename T> __device__ T twice(T x) { return x + x; }

extern "C" {
__device__ float scale_and_shift(float x, int n) { return x * state.scale + n + table[n & 15] + elsewhere + hidden_counter++; }
__device__ double many(double a, long b, unsigned char c, bool d, void *p, float4_t v) { return a + b + c + d + v.x + *(int *)p + other(b); }
__device__ __attribute__((weak)) int maybe(void) { return twice(elsewhere); }
__device__ void by_value(State s, State *out) { *out = s; }
__device__ void print(const char *format, ...);
__device__ void user(void) { print("hi", 1); }
__attribute__((global)) void kernel(float *out) {
  __shared__ float buffer[64];
  buffer[0] = 1;
  *out = scale_and_shift(1.f, 2) + buffer[0];
}
}
