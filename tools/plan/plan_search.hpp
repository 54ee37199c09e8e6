#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan/planner.hpp"

namespace tessera::tools {

/// One way to run what was asked for. The global batch is the same in all.
struct Choice {
  Settings settings;  ///< with prefetch, batch, accumulate and its mode as chosen
  Strategy strategy{};
  /// Elements of the model that pass through a rank in a step, for each of its parameters: what
  /// docs/memory.md's table of traffic says. 0 for one rank. Where the mesh has several copies of
  /// the states, only what passes between copies, as their links are the slow ones, and for all
  /// ranks of a copy together.
  std::int64_t traffic = 0;
  std::int64_t within_group = 0;  ///< the other traffic, for a rank
};

/// What a search does with the head of a GPT.
enum class HeadRows : std::uint8_t {
  as_asked,   ///< as settings.head_rows says
  in_chunks,  ///< an eighth of a micro-batch's rows at a time, and 64 at least
};

/// All ways to run `settings`, the cheapest first: in a pipeline enough micro-batches, then fewer
/// stages, least traffic, then least within a group, then larger micro-batches, then more prefetch,
/// then the simpler strategy. The interleaved schedule is among them where a pipeline has too few
/// micro-batches. `--prefetch`, `--accumulate-mode` and `--schedule`, if given, stay. `dp` is left
/// out, because its rank 0 holds all that a rank of `ddp` does; `hybrid` is tried if
/// `--shard-group` says how. In chunks only where a micro-batch has more rows than one.
[[nodiscard]] std::vector<Choice> choices(const Settings& settings,
                                          HeadRows head = HeadRows::as_asked);

struct Planned {
  Choice choice;
  StrategyPlan plan;
};

/// A mesh that splits the model, and the cheapest way to run on it.
struct SplitCandidate {
  Planned planned;
  double seconds = 0;  ///< of a step, if settings.machine tells
};

struct SearchResult {
  std::optional<Planned> found;    ///< the cheapest that fits settings.budget_bytes
  std::optional<Planned> nearest;  ///< of those that do not, the one with the lowest peak
  std::size_t tried = 0;
  std::vector<SplitCandidate> splits = {};  ///< that fit, in the order of split_settings
};

/// Plans the choices in order until one fits the budget. If none does, all of them again with the
/// head in chunks of rows, then with more and more recomputed: layer norms' outputs, GELU's, both,
/// every layer whole, each with the whole head and in chunks. If none does, and model states leave
/// room, all of that on the meshes of split_settings: the first that fits, or with settings.machine
/// the fastest of the first six. If none does, all of that without a mesh again with the
/// optimizer's state offloaded, and then with its update too (where they can be: can_offload();
/// on a CPU with both at once). What was typed of --recompute, --head-rows and --offload stays.
[[nodiscard]] SearchResult search(const Settings& settings);

/// The command that runs `choice`, with its data still to be named; for `--params`, that plans it.
[[nodiscard]] std::string command_line_of(const Choice& choice);

}  // namespace tessera::tools
