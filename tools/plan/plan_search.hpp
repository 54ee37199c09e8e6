#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan/planner.hpp"

namespace tessera::tools {

/// One way to run the request. All choices have the same global batch.
struct Choice {
  Settings settings;  ///< with the chosen prefetch, batch, accumulate and accumulate mode
  Strategy strategy{};
  /// Elements that pass through a rank per step for each parameter of the model, as in the table of
  /// traffic in docs/memory.md. 0 for one rank. If the mesh has several copies of the states, this
  /// counts only traffic between copies, whose links are the slow ones, for all ranks of a copy
  /// together.
  std::int64_t traffic = 0;
  std::int64_t within_group = 0;  ///< the other traffic, per rank
};

/// How a search treats the head of a GPT.
enum class HeadRows : std::uint8_t {
  as_asked,   ///< with settings.head_rows
  in_chunks,  ///< an eighth of a micro-batch's rows at a time, and at least 64
};

/// All ways to run `settings`, the cheapest first: in a pipeline enough micro-batches, then fewer
/// stages; then least traffic, least traffic within a group, larger micro-batches, more prefetch,
/// and the simpler strategy. Includes the interleaved schedule if a pipeline has too few
/// micro-batches. Typed values of `--prefetch`, `--accumulate-mode` and `--schedule` stay. Omits
/// `dp`, because its rank 0 holds all that a rank of `ddp` does; includes `hybrid` if
/// `--shard-group` is given. Uses chunks only if a micro-batch has more than one chunk of rows.
[[nodiscard]] std::vector<Choice> choices(const Settings& settings,
                                          HeadRows head = HeadRows::as_asked);

struct Planned {
  Choice choice;
  StrategyPlan plan;
};

/// A mesh that splits the model, and the cheapest way to run on it.
struct SplitCandidate {
  Planned planned;
  double seconds = 0;  ///< of a step, if settings.machine has a profile
};

struct SearchResult {
  std::optional<Planned> found;    ///< the cheapest that fits settings.world.budget_bytes
  std::optional<Planned> nearest;  ///< the tried choice with the lowest peak if none fits
  std::size_t tried = 0;
  bool skipped_meshes = false;              ///< none can fit: model states alone exceed the budget
  std::vector<SplitCandidate> splits = {};  ///< meshes that fit, in the order of split_settings
};

/// Plans the choices in order until one fits the budget. While none fits, it tries in turn:
///   - all of them with the head in chunks of rows;
///   - more and more recomputation: layer norms' outputs, GELU's, both, every layer whole, each
///     with the whole head and in chunks;
///   - if model states leave room, all of that on the meshes of split_settings: the first that
///     fits, or with settings.machine the fastest of the first six;
///   - all of that without a mesh and with the optimizer's state offloaded, then with its update
///     too (where they can be: can_offload(); on a CPU both at once).
/// Typed values of --recompute, --head-rows and --offload stay. A choice that cannot be, together
/// with what was typed, is skipped.
///
/// Errors: ConfigError, that of the first choice, if none can be.
[[nodiscard]] SearchResult search(const Settings& settings);

/// The command that runs `choice`, with its data still to be named; for `--params`, the command
/// that plans it.
[[nodiscard]] std::string command_line_of(const Choice& choice);

}  // namespace tessera::tools
