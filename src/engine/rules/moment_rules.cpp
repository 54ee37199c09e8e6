#include "engine/rules/moment_rules.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "tessera/base/moment_format.hpp"

namespace tessera::engine {
namespace {

/// Whether the part consists of whole blocks of the parameter. Like the parameter, it may end
/// within a block.
bool has_whole_blocks(const TensorPart& part, std::int64_t whole_elems) {
  bool whole_blocks = true;
  for (const Range& run : part.elements()) {
    const bool ends = run.end() % kMomentBlock == 0 || run.end() == whole_elems;
    whole_blocks = whole_blocks && run.first % kMomentBlock == 0 && ends;
  }
  return whole_blocks;
}

bool is_cut_within_blocks(const ParameterSpec& spec, int ranks) {
  if (!spec.cut || spec.tied_to || !spec.trainable) { return false; }
  for (int rank = 0; rank < ranks; ++rank) {
    const TensorPart part{spec.shape, *spec.cut, {rank, ranks}};
    if (!has_whole_blocks(part, spec.shape.elems())) { return true; }
  }
  return false;
}

}  // namespace

void check_moment_blocks(std::span<const DeclaredUnit> units, int ranks,
                         const OptimizerOptions& update) {
  if (update.moments != MomentFormat::int8 || ranks == 1) { return; }
  for (const DeclaredUnit& unit : units) {
    for (const ParameterSpec& spec : unit.layout->specs()) {
      if (!is_cut_within_blocks(spec, ranks)) { continue; }
      throw ConfigError{fmt::format(
          "`moments` int8 needs whole blocks of {} elements, and {} ranks along tensor cut '{}.{}' "
          "of shape {} along dimension {} within blocks: choose `moments` bf16 or fp32, or a "
          "granule or a number of ranks that leaves each rank whole blocks",
          kMomentBlock, ranks, unit.name, spec.name, spec.shape.to_string(), spec.cut->dim)};
    }
  }
}

}  // namespace tessera::engine
