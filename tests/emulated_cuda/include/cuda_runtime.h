#pragma once

// Stands before the toolkit's header of this name. The toolkit's own headers still declare the API
// and the types; what the compiler nvcc adds to the language is in device_language.hpp.
#undef __shared__  // another header of the toolkit may have come first
#define __shared__ static thread_local

#include <cuda_runtime_api.h>
#include <vector_functions.h>

// `const T __grid_constant__ x`: one for all threads of a grid, not a copy for each.
#undef __grid_constant__
// NOLINTNEXTLINE(bugprone-macro-parentheses): no expression
#define __grid_constant__ &

#include "emulated_cuda/device_language.hpp"
#include "emulated_cuda/device_math.hpp"
#include "emulated_cuda/launch.hpp"
