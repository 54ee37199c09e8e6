#pragma once

// For functions that run both on the processor and on a GPU, so that their results are equal by
// construction.
#if defined(__CUDACC__)
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif
