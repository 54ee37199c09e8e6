#include "tools/train/promises.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tessera/base/error.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/options/library_options.hpp"
#include "tools/plan/planner.hpp"

namespace tessera::tools {
namespace {

constexpr std::string_view kOurs = "this is a bug of tessera: please report the command";

void require_held(Strategy strategy, std::size_t rank, std::string_view what, std::size_t held,
                  std::size_t planned) {
  if (held == planned) { return; }
  throw Error(fmt::format("under {} rank {} held {} bytes{}, but {} were planned; {}",
                          to_string(strategy), rank, held, what, planned, kOurs));
}

/// Whether gradients are added in a different order than under the other strategies.
bool regroups(const Settings& settings, Strategy strategy) {
  const MeshShape mesh = mesh_of(settings, strategy);
  return mesh.size("replicate") > 1 && mesh.size("shard") > 1;
}

/// Requires equal losses in the first `steps` steps.
void require_same(const RunResult& a, const RunResult& b, std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) {
    const double x = a.steps[i].report.loss;
    const double y = b.steps[i].report.loss;
    if (same_loss(x, y)) { continue; }
    throw Error(
        fmt::format("the losses of {} and {} differ from step {} on ({:.17g} and {:.17g}), but "
                    "must have the same bits; {}",
                    to_string(a.strategy), to_string(b.strategy), i + 1, x, y, kOurs));
  }
}

}  // namespace

bool same_loss(double a, double b) noexcept {
  const bool same_bits = std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  return same_bits || (std::isnan(a) && std::isnan(b));
}

std::size_t plannable_peak(const Settings& settings, std::size_t peak_bytes,
                           const CategoryBytes& at_peak) {
  const bool nccl = planned_comm(settings, settings.ranks) == CommKind::nccl;
  return nccl ? peak_bytes - at_peak[Category::communicator] : peak_bytes;
}

void require_as_planned(const Job& job, Strategy strategy, std::span<const std::size_t> peaks) {
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    const MemoryReport& planned = job.planned(strategy, static_cast<int>(rank)).memory;
    require_held(strategy, rank, "", peaks[rank],
                 plannable_peak(job.settings, planned.peak_bytes, planned.at_peak));
  }
}

void require_as_planned(const Job& job, const RunResult& result) {
  std::vector<std::size_t> peaks;
  for (const RankMemory& rank : result.ranks) {
    peaks.push_back(plannable_peak(job.settings, rank.peak_bytes, rank.at_peak));
  }
  require_as_planned(job, result.strategy, peaks);
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const RankPlan& planned = job.planned(result.strategy, static_cast<int>(rank));
    const RankMemory& held = result.ranks[rank];
    // Buffers for reading a checkpoint are released before the first step.
    const std::size_t read_with = job.resume ? held.loaded_host_bytes : 0;
    require_held(result.strategy, rank, " in its host pool", held.host_peak_bytes,
                 std::max(planned.host_peak_bytes, read_with));
  }
}

void require_same_losses(const Settings& settings, const std::vector<RunResult>& results) {
  if (settings.comm == CommChoice::nccl || settings.world.nondeterministic_attention) { return; }
  const RunResult* base = nullptr;
  for (const RunResult& result : results) {
    require_same(results.front(), result, std::min<std::size_t>(1, result.steps.size()));
    if (regroups(settings, result.strategy)) { continue; }
    if (base == nullptr) { base = &result; }
    require_same(*base, result, result.steps.size());
  }
}

std::string divergence(const StepReport& last) {
  const bool searches =
      last.next_loss_scale != last.loss_scale;  // the run is searching for a scale that fits
  const bool stuck = last.skipped_in_a_row > (searches ? 1 : 0);
  const std::string skipped =
      last.skipped_in_a_row == 1
          ? "the last step was skipped"
          : fmt::format("the last {} steps were skipped", last.skipped_in_a_row);
  if (!std::isfinite(last.loss)) {
    return fmt::format("the loss of step {} is {}{}", last.step,
                       std::isnan(last.loss) ? "not a number" : "infinite",
                       last.skipped_in_a_row > 0 ? ", and " + skipped : "");
  }
  return stuck ? skipped + ", as their gradient was not finite" : "";
}

void warn_if_diverged(const std::string& title, const RunResult& result) {
  if (result.steps.empty()) { return; }
  const std::string text = divergence(result.steps.back().report);
  if (text.empty()) { return; }
  tell(fmt::format(
      "warning: {}the run has diverged: {}; lower --lr, give it a --warmup, or look at the data\n",
      title, text));
}

}  // namespace tessera::tools
