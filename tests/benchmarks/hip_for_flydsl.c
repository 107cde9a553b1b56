// SPDX-License-Identifier: Apache-2.0
// The rest of libamdhip64 that FlyDSL's engine is linked against: linked into the fake HIP for measurements, does
// nothing. Weak, so that what the fake has already is taken from there.

#define STUB(name)                                                                                                     \
  __attribute__((weak)) int name(void);                                                                                \
  int name(void) { return 0; }

STUB(hipDeviceSynchronize)
STUB(hipEventCreateWithFlags)
STUB(hipEventDestroy)
STUB(hipEventRecord)
STUB(hipEventSynchronize)
STUB(hipFree)
STUB(hipGetLastError)
STUB(hipHostGetDevicePointer)
STUB(hipHostRegister)
STUB(hipHostUnregister)
STUB(hipMalloc)
STUB(hipMemcpy)
STUB(hipMemcpyAsync)
STUB(hipMemset)
STUB(hipMemsetD16Async)
STUB(hipMemsetD32Async)
STUB(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor)
STUB(hipStreamCreate)
STUB(hipStreamDestroy)
STUB(hipStreamSynchronize)
STUB(hipStreamWaitEvent)

__attribute__((weak)) const char *hipGetErrorName(int code);
const char *hipGetErrorName(int code) { return code ? "hipErrorUnknown" : "hipSuccess"; }

// HIP initialises itself at the first call; the fake holds to hipInit, which FlyDSL's engine never calls.
int hipInit(unsigned flags);
__attribute__((constructor)) static void initialise(void) { hipInit(0); }
