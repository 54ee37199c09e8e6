#pragma once

// Shards libtorch modules: CMake component `torch`. A program that uses it also names libtorch, so
// it should not say `using namespace tessera`, which makes `torch` ambiguous.

#include "tessera/torch/meta.hpp"
#include "tessera/torch/plan.hpp"
#include "tessera/torch/random.hpp"
#include "tessera/torch/recompute.hpp"
#include "tessera/torch/run.hpp"
#include "tessera/torch/shard.hpp"
