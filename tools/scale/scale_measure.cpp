#include "tools/scale/scale_measure.hpp"

#include <fmt/format.h>

#include <span>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"
#include "tools/common/machine.hpp"
#include "tools/measure/step.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/ranks.hpp"
#include "tools/plan/room.hpp"
#include "tools/train/rank_gpt.hpp"

namespace tessera::tools {
namespace {

constexpr int kSteps = 2;  // a second step would hold more if anything grew
// A few seconds on an ordinary core.
constexpr double kFlopsPerCore = 1e11;
constexpr double kFlopsOfGpu = 1e14;

double flops(const Settings& run, const ScalePoint& point) {
  return double{kSteps} * data_ranks(run) * run.sharded.accumulate *
         bench::step_flops(point.model, run.batch);
}

Measurement not_run(std::string why, std::string reason) {
  return {{}, std::move(why), std::move(reason)};
}

std::optional<Measurement> beyond(const Settings& settings, const ScalePoint& point) {
  if (!point.fits()) { return not_run("no fit", "not even the smallest model fits"); }
  if (planned_comm(settings, point.ranks) != CommKind::local) {
    return not_run("processes",
                   fmt::format("planned for ranks in processes of their own (--comm {})",
                               to_string(planned_comm(settings, point.ranks))));
  }
  if (point.ranks > kMostThreadRanks) {
    return not_run("threads",
                   fmt::format("one process can have at most {} ranks", kMostThreadRanks));
  }
  const Settings run = settings_of_point(settings, point.strategy, point.ranks);
  for (const Room& room : rooms_of_threads(run)) {
    const double need = bytes_in(room, point.plan);
    if (need <= 0.75 * room.free_bytes) { continue; }
    return not_run("memory",
                   fmt::format("{} ranks need {:.3g} GiB, more than three quarters of the {} of {}",
                               room.ranks.size(), need / (1 << 30),
                               format_bytes(static_cast<std::size_t>(room.free_bytes)), room.name));
  }
  const bool cuda = settings.world.device == DeviceKind::cuda;
  const double most = cuda ? kFlopsOfGpu : kFlopsPerCore * usable_cores();
  if (const double work = flops(run, point); work > most) {
    return not_run("time",
                   fmt::format("two steps are {:.3g} GFLOP, more than the {:.3g} allowed here",
                               work * 1e-9, most * 1e-9));
  }
  return {};
}

/// Tokens of the vocabulary, different for each rank.
std::vector<std::int32_t> tokens(const nn::DecoderConfig& model, std::int64_t batch, int rank) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(batch * model.seq));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto value =
        (i * 31 + static_cast<std::size_t>(rank) * 7) % static_cast<std::size_t>(model.vocab);
    all[i] = static_cast<std::int32_t>(value);
  }
  return all;
}

std::size_t train(World& world, const Settings& settings, const ScalePoint& point) {
  RankGpt gpt{world, settings, point.model, point.strategy};
  gpt.materialize(gpt.initializer());
  gpt.optimize();
  gpt.reserve();
  const std::vector<std::int32_t> words =
      tokens(point.model, settings.batch, data_index(settings, world.rank()));
  for (int step = 0; step < kSteps; ++step) {
    gpt.run([&](int /*micro_batch*/) { return nn::MicroBatch{words, words}; });
    gpt.update(settings.lr);
  }
  (void)gpt.report();  // waits for the computation
  return world.memory().report().peak_bytes;
}

}  // namespace

Measurement measure(const Settings& settings, const ScalePoint& point) {
  if (auto reason = beyond(settings, point)) { return *reason; }
  Settings run = settings_of_point(settings, point.strategy, point.ranks);
  run.comm = CommChoice::local;
  run.world.budget_bytes
      .reset();        // a point fits its budget; the measurement is to show what it holds without
  run.report.clear();  // this run records nothing
  Measurement measured;
  measured.peak_bytes.resize(static_cast<std::size_t>(point.ranks));
  try {
    run_on_ranks(run, [&](World& world) {
      measured.peak_bytes[static_cast<std::size_t>(world.rank())] = train(world, run, point);
    });
  } catch (const OutOfMemory& error) {
    return not_run("memory", error.what());
  } catch (const DeviceError& error) { return not_run("threads", error.what()); }
  return measured;
}

std::string deviation(const std::vector<ScalePoint>& points) {
  std::string text;
  for (const ScalePoint& point : points) {
    if (!point.measured) { continue; }
    for (std::size_t r = 0; r < point.measured->peak_bytes.size(); ++r) {
      const std::size_t planned = point.plan.of(static_cast<int>(r)).memory.peak_bytes;
      if (point.measured->peak_bytes[r] == planned) { continue; }
      text += fmt::format("{} on {} ranks: rank {} held {} bytes, but {} were planned\n",
                          to_string(point.strategy), point.ranks, r, point.measured->peak_bytes[r],
                          planned);
      break;
    }
  }
  return text;
}

}  // namespace tessera::tools
