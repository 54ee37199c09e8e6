#pragma once

// Precedes the toolkit's header of this name. The toolkit's headers still declare the API and its
// types; device_language.hpp has nvcc's language extensions.
#undef __shared__  // another toolkit header may define it first
#define __shared__ static thread_local

#include <cuda_runtime_api.h>
#include <vector_functions.h>

// `const T __grid_constant__ x`: all threads of a grid share one, without a copy each.
#undef __grid_constant__
// NOLINTNEXTLINE(bugprone-macro-parentheses): no expression
#define __grid_constant__ &

#include "emulated_cuda/device_language.hpp"
#include "emulated_cuda/device_math.hpp"
#include "emulated_cuda/launch.hpp"
