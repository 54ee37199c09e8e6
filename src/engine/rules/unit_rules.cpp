#include "engine/rules/unit_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/rules/options.hpp"
#include "tessera/base/error.hpp"

namespace tessera::engine {
namespace {

using UnitSpan = std::span<const DeclaredUnit>;

// A million times the size of today's largest models.
constexpr std::int64_t kMostElems = std::int64_t{1} << 50;

bool has_masters(const SegmentLayout& segment) noexcept {
  return segment.trainable() && segment.dtypes().parameter != segment.dtypes().master;
}

bool any_has_masters(UnitSpan units) {
  return std::ranges::any_of(units, [](const DeclaredUnit& unit) {
    return std::ranges::any_of(unit.layout->segments(), has_masters);
  });
}

void check_unzeroed(UnitSpan units, const ModelOptions& options) {
  const AccumulateMode mode = resolve(options.accumulate_mode, options.strategy);
  if (options.accumulate == 1 || mode != AccumulateMode::deferred) { return; }
  for (const DeclaredUnit& unit : units) {
    if (unit.options.gradients != GradientInit::unzeroed) { continue; }
    throw ConfigError{
        fmt::format("unit '{}' asks for unzeroed gradients, but {} micro-batches accumulate in "
                    "them: use zeroed gradients, or set `accumulate_mode` to every",
                    unit.name, options.accumulate)};
  }
}

void check_master_weights(UnitSpan units, const ModelOptions& options) {
  if (options.master_weights == MasterWeights::fp32) { return; }
  bool any = false;
  for (const DeclaredUnit& unit : units) {
    for (const SegmentLayout& segment : unit.layout->segments()) {
      if (!segment.trainable() || segment.elems() == 0) { continue; }
      if (segment.dtypes().parameter == DType::fp16) {
        throw ConfigError{
            fmt::format("`master_weights` remainder: unit '{}' trains fp16 parameters, which are "
                        "not the upper half of an fp32 number; use bf16, or set `master_weights` "
                        "to fp32",
                        unit.name)};
      }
      any = any || segment.dtypes().parameter == DType::bf16;
    }
  }
  if (any) { return; }
  throw ConfigError{
      "`master_weights` remainder has no effect: no bf16 parameter is trained; leave it at fp32, "
      "or set `compute` to bf16"};
}

void check_persistence(UnitSpan units, const ModelOptions& options) {
  if (options.persist_elems == 0) { return; }
  std::int64_t smallest = 0;
  for (const DeclaredUnit& unit : units) {
    const std::int64_t elems = unit.layout->whole_elems();
    if (elems > 0 && (smallest == 0 || elems < smallest)) { smallest = elems; }
  }
  if (smallest <= options.persist_elems) { return; }
  throw ConfigError{
      fmt::format("`persist_elems` is {}, but the smallest unit has {} elements, so no unit would "
                  "persist: raise it, or leave it at 0",
                  options.persist_elems, smallest)};
}

// Whole units stay on the device, the last declared first.
void check_offload(UnitSpan units, const ModelOptions& options) {
  if (options.offload == Offload::none) { return; }
  std::int64_t total = 0;
  std::int64_t last = 0;  // elements of the last unit that trains
  for (const DeclaredUnit& unit : units) {
    const std::int64_t elems = updated_elems(*unit.layout);
    total += elems;
    if (elems > 0) { last = elems; }
  }
  if (total == 0) {
    throw ConfigError{
        fmt::format("`offload` {} has no effect, because nothing is trained: set `offload` to none",
                    to_string(options.offload))};
  }
  const double most = static_cast<double>(options.offload_keep) * static_cast<double>(total);
  if (options.offload_keep == 0.0F || static_cast<double>(last) <= most) { return; }
  throw ConfigError{
      fmt::format("`offload_keep` is {}, but the last unit has {} of the {} trained elements, so "
                  "no whole unit would stay: raise it, or leave it at 0",
                  options.offload_keep, last, total)};
}

}  // namespace

std::int64_t add_elems(std::int64_t declared, std::string_view unit, const UnitLayout& layout) {
  std::int64_t sum = declared;
  for (const SegmentLayout& segment : layout.segments()) {
    sum += std::min(segment.padded_elems(), kMostElems + 1);
    if (sum <= kMostElems) { continue; }
    throw ConfigError{
        fmt::format("unit '{}' takes the model above 2^50 elements: check its shapes", unit)};
  }
  return sum;
}

std::int64_t updated_elems(const UnitLayout& layout) noexcept {
  std::int64_t elems = 0;
  for (const SegmentLayout& segment : layout.segments()) {
    elems += segment.trainable() ? segment.padded_elems() : 0;
  }
  return elems;
}

void check_units(UnitSpan units, const ModelOptions& options) {
  check_unzeroed(units, options);
  check_master_weights(units, options);
  check_persistence(units, options);
  check_offload(units, options);
}

void check_update(UnitSpan units, const ModelOptions& options, const Optimizer& optimizer,
                  const OptimizerOptions& update) {
  const bool masters = any_has_masters(units);
  if (update.rounding == Rounding::stochastic && update.moments != MomentFormat::bf16 && !masters) {
    throw ConfigError{
        "`rounding` stochastic has no effect, because neither trained parameters nor moments have "
        "16 bits: leave it at nearest, or use 16-bit parameters or moments"};
  }
  if (options.offload == Offload::none || masters || state_count(optimizer) > 0) { return; }
  throw ConfigError{
      fmt::format("`offload` {} has no effect, because {} keeps no state and fp32 parameters need "
                  "no masters: set `offload` to none",
                  to_string(options.offload), describe(optimizer))};
}

}  // namespace tessera::engine
