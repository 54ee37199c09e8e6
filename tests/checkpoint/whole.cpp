// Saves a random model, verifies and loads it on other ranks, and damages copies of the checkpoint:
// a verdict must be what a load says. Trials (scripts/trials/checkpoints.py) run it.
//
//   checkpoint_whole SEED DAMAGES DIR   DIR is empty; prints how many copies were found damaged
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "checkpoint/forwarding_files.hpp"
#include "checkpoint/random_damage.hpp"
#include "checkpoint/random_job.hpp"
#include "checkpoint/saver.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/checkpoint/reader.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;
using What = LoadOptions::What;

/// A property that does not hold.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& what) {
  if (!holds) { throw Broken{what}; }
}

/// A job, and what is saved with its model.
struct Run {
  MeshJob job;
  std::uint64_t extras_seed = 0;
  SaveOptions save = {};
  int steps = 0;

  [[nodiscard]] std::string words() const {
    std::string mesh;
    for (const MeshDim& dim : job.options.mesh) {
      mesh += fmt::format(" {}={}", dim.name, dim.size);
    }
    return fmt::format("{} on{}, {}, {} steps", to_string(job.options.strategy), mesh,
                       to_string(job.options.compute), steps);
  }
};

/// Runs `body` on each rank of the job. Returns false if the job is refused before it.
template <class Body>
bool runs(const MeshJob& job, const Body& body) {
  std::atomic<bool> begun = false;
  try {
    run_job(job, [&](World& world, MeshTrainer& trainer) {
      begun = true;
      body(world, trainer);
    });
  } catch (const ConfigError&) {
    if (begun) { throw; }
    return false;
  }
  return true;
}

/// Trains and saves twice, one step apart; returns the checkpoints, or nothing for a job that is
/// refused.
std::optional<std::pair<fs::path, fs::path>> saved(const Run& run, const fs::path& folder,
                                                   bool beside_steps) {
  std::pair<fs::path, fs::path> paths;
  const bool legal = runs(run.job, [&](World& world, MeshTrainer& trainer) {
    Draws draws{run.extras_seed};
    const RandomExtras extras{draws};
    Checkpointer checkpointer{
        trainer.model(),
        {.folder = folder, .keep = 0, .asynchronous = beside_steps, .save = run.save}};
    trainer.steps(run.steps);
    checkpointer.save(extras.get());
    trainer.step();
    checkpointer.finish();
    const fs::path first = checkpointer.newest();
    checkpointer.save(extras.get());
    checkpointer.finish();
    if (world.rank() == 0) { paths = {first, checkpointer.newest()}; }
  });
  return legal ? std::optional{paths} : std::nullopt;
}

/// The error of loading `checkpoint` into the job's model; empty if it is loaded. With `again` the
/// model is then saved there, with the extras that the load has filled.
std::string load_failure(const Run& run, const fs::path& checkpoint, What what,
                         const fs::path& again = {}) {
  std::string failure;
  const auto body = [&](World& world, MeshTrainer& trainer) {
    Draws draws{run.extras_seed};
    RandomExtras extras{draws};
    extras.forget();
    CheckpointExtras filled = extras.get();
    try {
      const bool all = what == What::everything;
      const LoadReport report =
          load(trainer.model(), checkpoint, all ? filled : CheckpointExtras{}, {.what = what});
      if (all) { filled.values = report.values; }
    } catch (const FormatError& error) {
      if (world.rank() == 0) { failure = error.what(); }
      return;
    }
    if (!again.empty()) { (void)save(trainer.model(), again, filled, run.save); }
  };
  require(runs(run.job, body), "a job that was saved is refused");
  return failure;
}

/// Loads on other ranks: the state must be equal to the bit.
void require_loads_elsewhere(Draws& draws, const Run& run, const fs::path& checkpoint,
                             const fs::path& folder) {
  for (int tries = 0;; ++tries) {
    Run other = run;
    other.job = tries < 30 ? elsewhere(draws, run.job) : run.job;
    try {
      const std::string failure = load_failure(other, checkpoint, What::everything, folder);
      require(failure.empty(), other.words() + ": " + failure);
    } catch (const Broken& refused) {
      if (std::string_view{refused.what()}.starts_with("a job") && tries < 30) { continue; }
      throw;
    }
    const std::string differs = difference(checkpoint, folder / checkpoint.filename());
    require(differs.empty(), other.words() + ": other bytes in " + differs);
    return;
  }
}

/// Saves on two machines without a shared file system: what a rehearsal accepts is saved and loads,
/// and what it refuses is not saved. Returns whether it was saved.
bool saves_in_parts(const Run& run, const fs::path& whole, const fs::path& folder) {
  std::atomic<bool> refused = false;
  (void)runs(run.job, [&](World& world, MeshTrainer& trainer) {
    FilesOf files{2 * world.rank() / world.size()};
    Draws draws{run.extras_seed};
    const RandomExtras extras{draws};
    checkpoint::Saver saver{
        trainer.model(), {.folder = folder / files.machine(), .save = run.save}, files};
    try {
      saver.rehearse();
    } catch (const Error&) { refused = true; }
    trainer.steps(run.steps);
    try {
      saver.begin(extras.get());
      require(!refused, "a save that the rehearsal has refused is written");
    } catch (const Error& error) { require(refused, error.what()); }
  });
  if (refused) { return false; }
  fs::create_directories(folder / "all");
  for (const int machine : {0, 1}) {
    const fs::path from = folder / fmt::format("machine{}", machine);
    for (const auto& part : fs::directory_iterator{from}) {
      fs::rename(part.path(), folder / "all" / part.path().filename());
    }
  }
  const std::string failure =
      load_failure(run, folder / "all" / whole.filename(), What::everything, folder / "again");
  require(failure.empty(), failure);
  const std::string differs = difference(whole, folder / "again" / whole.filename());
  require(differs.empty(), "parts have other bytes in " + differs);
  return true;
}

/// The verdicts on a checkpoint, by content: whether it is whole.
struct Verdicts {
  std::array<bool, kContents.size()> whole = {true, true, true, true};
  bool has_masters = false;

  [[nodiscard]] bool on(Content content) const { return whole[static_cast<std::size_t>(content)]; }
  [[nodiscard]] bool all() const { return std::ranges::all_of(whole, std::identity{}); }
};

Verdicts verdicts_on(const fs::path& checkpoint) {
  Verdicts verdicts;
  try {
    const CheckpointReader reader{checkpoint, {}};
    for (const Content content : kContents) {
      const Verdict verdict = reader.verdict_on(content);
      verdicts.whole[static_cast<std::size_t>(content)] = verdict.damage.empty();
      if (content == Content::masters) { verdicts.has_masters = verdict.tensors > 0; }
    }
  } catch (const FormatError&) { verdicts.whole.fill(false); }
  return verdicts;
}

bool is_refused(const auto& call) {
  try {
    call();
  } catch (const FormatError&) { return true; }
  return false;
}

void require_same(bool whole, const std::string& failure, const char* what) {
  require(whole == failure.empty(),
          whole ? fmt::format("{} is whole, but does not load: {}", what, failure)
                : fmt::format("{} is damaged, but loads", what));
}

/// Replaces all files but those of the optimizer and its masters by whole ones.
void restore_others(const fs::path& whole, const fs::path& damaged) {
  for (const auto& entry : fs::directory_iterator{whole}) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("optimizer")) { continue; }
    fs::remove_all(damaged / name);
    fs::copy(entry.path(), damaged / name);
  }
}

/// Damages a copy of `whole`, and compares verdicts with loads. Returns whether it is damaged.
bool judged(Draws& draws, const Run& run, const fs::path& whole, const fs::path& stale,
            const fs::path& folder) {
  fs::path copy = folder / whole.filename();
  fs::create_directories(folder);
  fs::copy(whole, copy);
  const std::string done = RandomDamage{draws, copy, stale}.act();
  if (done.starts_with("renamed")) {
    fs::rename(copy, folder / stale.filename());
    copy = folder / stale.filename();
  }
  try {
    const Verdicts verdicts = verdicts_on(copy);
    require_same(verdicts.all(), load_failure(run, copy, What::everything, folder / "again"),
                 "everything");
    const bool masters = !verdicts.has_masters || verdicts.on(Content::masters);
    require_same(verdicts.on(Content::weights) && masters, load_failure(run, copy, What::weights),
                 "what the model has of weights");
    require(is_refused([&] { verify_weights(copy); }) != verdicts.on(Content::weights),
            "verify_weights and the verdict on weights differ");
    if (verdicts.all()) {
      const std::string differs = difference(whole, folder / "again" / whole.filename());
      require(differs.empty(), "damage was loaded: other bytes in " + differs);
      return false;
    }
    if (!done.starts_with("renamed")) {
      const bool state = verdicts.on(Content::optimizer) && verdicts.on(Content::masters);
      const bool manifest = !fs::is_regular_file(copy / checkpoint::kManifestName) ||
                            is_refused([&] { const CheckpointReader reader{copy, {}}; });
      restore_others(whole, copy);
      if (!manifest) {
        require_same(state, load_failure(run, copy, What::everything), "optimizer state");
      }
    }
    return true;
  } catch (const Broken& broken) { throw Broken{done + ": " + broken.what()}; }
}

void try_all(std::uint64_t seed, int damages, const fs::path& folder) {
  Draws draws{seed};
  Run run;
  std::optional<std::pair<fs::path, fs::path>> paths;
  while (!paths) {
    run = {.job = random_job(draws),
           .extras_seed = static_cast<std::uint64_t>(draws.below(1 << 30)),
           .save = {.shard_bytes = std::uint64_t{1} << 30},
           .steps = draws.below(3)};
    if (draws.one_in(2)) {
      run.save.shard_bytes = 100 + static_cast<std::uint64_t>(draws.below(4'000));
    }
    fs::remove_all(folder / "run");
    paths = saved(run, folder / "run", draws.one_in(2));
  }
  const auto& [checkpoint, stale] = *paths;
  int found = 0;
  bool parts = false;
  try {
    require(verdicts_on(checkpoint).all(), "the checkpoint is not whole");
    require_loads_elsewhere(draws, run, checkpoint, folder / "elsewhere");
    if (run.job.ranks() > 1) { parts = saves_in_parts(run, checkpoint, folder / "parts"); }
    for (int i = 0; i < damages; ++i) {
      const fs::path here = folder / fmt::format("damage{}", i);
      found += judged(draws, run, checkpoint, stale, here) ? 1 : 0;
      fs::remove_all(here);
    }
  } catch (const std::exception& error) {
    throw Broken{fmt::format("{}: {}", run.words(), error.what())};
  }
  fmt::print("{} damaged{}\n", found, parts ? ", in parts" : "");
}

}  // namespace
}  // namespace tessera::test

int main(int count, char** words) {
  if (count != 4) { return 2; }
  try {
    tessera::test::try_all(std::stoull(words[1]), std::stoi(words[2]), words[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
