#pragma once

#include <string>

#include "tessera/optim/optimizer.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// "adamw", "adam", "sgd", "lion".
[[nodiscard]] std::string_view to_string(UpdateRule rule) noexcept;
/// ConfigError that lists them.
[[nodiscard]] UpdateRule parse_update_rule(std::string_view name);

/// The rule with what was typed. Where the rules' defaults differ (the second beta, weight decay),
/// those of the table are AdamW's, and the others keep their own.
[[nodiscard]] Optimizer optimizer_of(const Settings& settings);
[[nodiscard]] OptimizerOptions optimizer_options(const Settings& settings);

/// ConfigError if an option was typed that the rule asked for does not have.
void check_optimizer(const Settings& settings);

/// Whether `--offload` with `what`, optimizer or state, could be added to what was asked for, and
/// would take something off a rank that trains.
[[nodiscard]] bool can_offload(const Settings& settings, Offload what);

/// ", lion, moments bf16, rounded stochastically"; empty for what is usual. For people.
[[nodiscard]] std::string describe_optimizer(const Settings& settings);

/// " --optimizer lion --moments bf16", as a user would type it; empty for what is usual.
[[nodiscard]] std::string optimizer_words(const Settings& settings);

}  // namespace tessera::tools
