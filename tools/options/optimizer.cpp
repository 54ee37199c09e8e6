#include "tools/options/optimizer.hpp"

#include <fmt/format.h>

#include <vector>

#include "tessera/base/error.hpp"
#include "tools/options/mesh.hpp"

namespace tessera::tools {
namespace {

/// Options of other rules that have no effect under this one.
std::vector<std::string_view> without_effect(UpdateRule rule) {
  switch (rule) {
    case UpdateRule::sgd:
      return {"--beta1", "--beta2", "--eps"};
    case UpdateRule::lion:
      return {"--momentum", "--eps"};
    case UpdateRule::adamw:
    case UpdateRule::adam:
      break;
  }
  return {"--momentum"};
}

bool keeps_no_moments(const Settings& settings) {
  return settings.optimizer == UpdateRule::sgd && settings.momentum == 0.0F;
}

DType dtype_of_norms(const Settings& settings) {
  return settings.params ? settings.sharded.compute
                         : settings.norm_dtype.value_or(settings.sharded.compute);
}

}  // namespace

std::string_view to_string(UpdateRule rule) noexcept {
  switch (rule) {
    case UpdateRule::adamw:
      return "adamw";
    case UpdateRule::adam:
      return "adam";
    case UpdateRule::sgd:
      return "sgd";
    case UpdateRule::lion:
      break;
  }
  return "lion";
}

UpdateRule parse_update_rule(std::string_view name) {
  for (const UpdateRule rule :
       {UpdateRule::adamw, UpdateRule::adam, UpdateRule::sgd, UpdateRule::lion}) {
    if (name == to_string(rule)) { return rule; }
  }
  throw ConfigError(fmt::format("'{}' is unknown; use adamw, adam, sgd or lion", name));
}

Optimizer optimizer_of(const Settings& settings) {
  const auto given = [&](std::string_view option, float typed, float rules_own) {
    return settings.has(option) ? typed : rules_own;
  };
  const auto decay = [&](float rules_own) {
    return given("--weight-decay", settings.weight_decay, rules_own);
  };
  switch (settings.optimizer) {
    case UpdateRule::adam:
      return Adam{.lr = settings.lr,
                  .beta1 = settings.beta1,
                  .beta2 = given("--beta2", settings.beta2, Adam{}.beta2),
                  .eps = settings.eps,
                  .weight_decay = decay(Adam{}.weight_decay)};
    case UpdateRule::sgd:
      return SGD{.lr = settings.lr,
                 .momentum = settings.momentum,
                 .weight_decay = decay(SGD{}.weight_decay)};
    case UpdateRule::lion:
      return Lion{.lr = settings.lr,
                  .beta1 = settings.beta1,
                  .beta2 = given("--beta2", settings.beta2, Lion{}.beta2),
                  .weight_decay = decay(Lion{}.weight_decay)};
    case UpdateRule::adamw:
      break;
  }
  return AdamW{.lr = settings.lr,
               .beta1 = settings.beta1,
               .beta2 = settings.beta2,
               .eps = settings.eps,
               .weight_decay = settings.weight_decay};
}

OptimizerOptions optimizer_options(const Settings& settings) {
  OptimizerOptions options = settings.update;
  options.rounding_seed = settings.seed;
  return options;
}

bool can_offload(const Settings& settings, Offload what) {
  const bool by_host = what == Offload::optimizer;
  // Gradients that ranks along tensor or places along pipe add up stay on the device.
  const bool adds = ranks_along(settings, "pipe") > 1 || settings.sequence_parallel;
  const bool not_by_host =
      adds || settings.sharded.master_weights != MasterWeights::fp32 || !settings.machine.empty();
  const bool refused =
      settings.sharded.offload != Offload::none || settings.graph || (by_host && not_by_host);
  const DType norms = dtype_of_norms(settings);
  const bool has_masters = settings.sharded.compute != DType::fp32 || norms != DType::fp32;
  return !refused && (has_masters || !keeps_no_moments(settings));
}

void check_optimizer(const Settings& settings) {
  for (const std::string_view option : without_effect(settings.optimizer)) {
    if (!settings.has(option)) { continue; }
    throw ConfigError(fmt::format("{} has no effect with --optimizer {}; leave it out", option,
                                  to_string(settings.optimizer)));
  }
}

std::string describe_optimizer(const Settings& settings) {
  std::string text;
  if (settings.optimizer != UpdateRule::adamw) {
    text = fmt::format(", {}", to_string(settings.optimizer));
  }
  if (settings.update.moments != MomentFormat::fp32) {
    text += fmt::format(", moments {}", to_string(settings.update.moments));
  }
  if (settings.update.rounding == Rounding::stochastic) { text += ", rounded stochastically"; }
  if (settings.sharded.master_weights == MasterWeights::remainder) {
    text += ", remainders of masters";
  }
  return text;
}

std::string optimizer_words(const Settings& settings) {
  std::string words;
  if (settings.optimizer != UpdateRule::adamw) {
    words = fmt::format(" --optimizer {}", to_string(settings.optimizer));
  }
  if (settings.has("--momentum")) { words += fmt::format(" --momentum {}", settings.momentum); }
  if (settings.update.moments != MomentFormat::fp32) {
    words += fmt::format(" --moments {}", to_string(settings.update.moments));
  }
  if (settings.update.rounding == Rounding::stochastic) { words += " --rounding stochastic"; }
  if (settings.sharded.master_weights == MasterWeights::remainder) {
    words += " --master-weights remainder";
  }
  return words;
}

}  // namespace tessera::tools
