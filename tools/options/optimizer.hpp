#pragma once

#include <string>

#include "tessera/optim/optimizer.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// "adamw", "adam", "sgd", "lion".
[[nodiscard]] std::string_view to_string(UpdateRule rule) noexcept;
/// ConfigError that lists the valid names.
[[nodiscard]] UpdateRule parse_update_rule(std::string_view name);

/// The rule with the typed options. Where the rules' defaults differ (the second beta, weight
/// decay), the option table has AdamW's, and the other rules use their own.
[[nodiscard]] Optimizer optimizer_of(const Settings& settings);
[[nodiscard]] OptimizerOptions optimizer_options(const Settings& settings);

/// ConfigError if a typed option does not exist for the chosen rule.
void check_optimizer(const Settings& settings);

/// Whether `--offload` with `what`, optimizer or state, can be added to `settings` and would free
/// memory on a training rank.
[[nodiscard]] bool can_offload(const Settings& settings, Offload what);

/// ", lion, moments bf16, rounded stochastically"; empty for the defaults. For people.
[[nodiscard]] std::string describe_optimizer(const Settings& settings);

/// " --optimizer lion --moments bf16", as a user would type it; empty for the defaults.
[[nodiscard]] std::string optimizer_words(const Settings& settings);

}  // namespace tessera::tools
