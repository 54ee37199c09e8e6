#pragma once

#include "c/errors.hpp"
#include "tessera/base/dtype.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/memory/category.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/world/world_options.hpp"

namespace tessera::c {

// Converts the structs of options. Null: the defaults. Throws ContractError for a number without a
// meaning; the library checks whether values fit together.
[[nodiscard]] WorldOptions world_options(Call call, const tessera_world_options* given);
[[nodiscard]] ModelOptions model_options(Call call, const tessera_model_options* given);

/// An optimizer with its options.
struct OptimizerChoice {
  Optimizer rule;
  OptimizerOptions options;
};
[[nodiscard]] OptimizerChoice optimizer_choice(Call call, const tessera_optimizer_options* given);

[[nodiscard]] DType dtype_of(Call call, const char* name, tessera_dtype dtype);
[[nodiscard]] Category category_of(Call call, tessera_category category);

}  // namespace tessera::c
