#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/enumerator.hpp"
#include "base/kept_path.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/collective_failure.hpp"
#include "checkpoint/load_plan.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/loaded_extras.hpp"
#include "checkpoint/longest_wait.hpp"
#include "checkpoint/manifest_state.hpp"
#include "checkpoint/share_loader.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {
namespace {

using What = LoadOptions::What;

/// The tensors of the manifest that the job has summed completely.
std::vector<bool> summed_tensors(const Manifest& manifest, const checkpoint::LoadPlan& plan) {
  std::vector<bool> summed(manifest.tensors.size(), false);
  const auto mark = [&](const checkpoint::TensorSource& from) {
    if (from.summed) { summed[from.tensor] = true; }
  };
  for (const checkpoint::TensorRecipe& recipe : plan.recipes) {
    if (!recipe.reads()) { continue; }
    mark(recipe.from);
    if (recipe.beside) { mark(*recipe.beside); }
  }
  return summed;
}

/// Compares the sums of all ranks with those of the manifest.
void compare_sums(const Manifest& manifest, const std::vector<bool>& summed,
                  const std::vector<std::string>& all, const std::string& path) {
  std::vector<std::vector<std::uint64_t>> read(manifest.tensors.size());
  for (std::size_t i = 0; i < read.size(); ++i) { read[i].resize(manifest.tensors[i].sums.size()); }
  for (const std::string& text : all) {
    checkpoint::for_each_sum(text, [&](std::size_t tensor, std::size_t block, std::uint64_t sum) {
      read.at(tensor).at(block) += sum;
    });
  }
  for (std::size_t i = 0; i < read.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    if (!summed[i] || read[i] == tensor.sums) { continue; }
    const auto differs = std::ranges::mismatch(read[i], tensor.sums).in1 - read[i].begin();
    const std::uint64_t first = static_cast<std::uint64_t>(differs) * checkpoint::kChecksumBlock;
    const std::uint64_t end = std::min(first + checkpoint::kChecksumBlock, tensor.bytes);
    throw FormatError{
        fmt::format("{}/{}: tensor '{}': bytes {} to {} of the file are damaged: their checksum is "
                    "not that of {}; resume from an earlier checkpoint",
                    path, shown(tensor.file), shown(tensor.name), tensor.first_byte + first,
                    tensor.first_byte + end - 1, checkpoint::kManifestName)};
  }
}

/// Fills this rank's share. Ranks meet while they read, so that a rank which waits for another
/// (under dp one rank reads everything) is not taken for lost.
void load_share(World& world, engine::TrainingState& state, const checkpoint::LoadPlan& plan,
                checkpoint::LoadSource& source, checkpoint::SumTable& sums) {
  std::optional<checkpoint::ShareLoader> loader;
  bool is_filled = false;
  for (bool goes_on = true; goes_on;) {
    std::string text = checkpoint::text_of_failure(checkpoint::failure_of([&] {
      if (!loader) { loader.emplace(world, state, plan, source); }
      is_filled = is_filled || loader->load(sums, checkpoint::longest_wait(world));
    }));
    if (text.empty() && is_filled) { text = checkpoint::text_of_result({}); }
    const std::vector<std::string> all = world.exchange(text);
    const std::string failure = checkpoint::first_failure(all);
    if (!failure.empty()) { checkpoint::throw_failure(failure); }
    goes_on = !checkpoint::all_have_ended(all);
  }
}

/// What a load of weights takes: masters too, where the model has them.
Contents taken(const Manifest& manifest, const checkpoint::LoadPlan& plan) {
  Contents contents;
  const auto add = [&](const checkpoint::TensorSource& from) {
    contents.insert(content_of(manifest.tensors[from.tensor].role));
  };
  for (const checkpoint::TensorRecipe& recipe : plan.recipes) {
    if (!recipe.reads()) { continue; }
    add(recipe.from);
    if (recipe.beside) { add(*recipe.beside); }
  }
  return contents;
}

engine::StateCounters counters_after(const engine::TrainingState& state, const Manifest& manifest,
                                     const ModelOptions& options, What what) {
  if (what == What::everything) { return checkpoint::counters_of(manifest, options); }
  return {.loss_scale = state.counters().loss_scale};
}

/// The absolute path of the folder in which the checkpoint at `path` is.
std::filesystem::path run_of(const std::filesystem::path& path) {
  return kept_path(path).parent_path();
}

}  // namespace

LoadReport load(ShardedModel& model, const std::filesystem::path& path,
                const CheckpointExtras& extras, const LoadOptions& options) {
  World& world = model.world();
  engine::TrainingState state{model, "load"};
  state.require_no_gradients();
  require_enumerator("load: what", options.what, What::weights);
  const bool everything = options.what == What::everything;
  expects(!everything || state.has_optimizer(),
          "load: the model has no optimizer; call optimize_with before loading the whole state");
  expects(!options.only || !everything,
          "load: `only` applies to weights; leave it out, or load only the weights");
  if (world.simulated()) {
    state.begin_write();
    state.end_write(state.counters());  // takes the memory that ranks hand copies on with
    return {};
  }

  std::unique_ptr<checkpoint::LoadSource> source;
  std::optional<checkpoint::LoadPlan> plan;
  engine::StateCounters counters;
  checkpoint::agree_on_failure(
      world, checkpoint::failure_of([&] {
        source = checkpoint::open_load_source(path, options.what);
        plan.emplace(state, source->manifest(), options, path.string());
        if (!everything) { source->check_files(taken(source->manifest(), *plan)); }
        counters = counters_after(state, source->manifest(), model.options(), options.what);
        if (everything) { checkpoint::require_extras(source->manifest(), extras, path.string()); }
      }));
  std::vector<bool> summed = summed_tensors(source->manifest(), *plan);

  checkpoint::SumTable sums;
  state.begin_write();
  load_share(world, state, *plan, *source, sums);
  if (everything) { checkpoint::load_extras(world, *source, extras, sums, summed); }
  compare_sums(source->manifest(), summed, world.exchange(sums.text()), path.string());
  state.end_write(counters);
  if (everything) { state.set_loaded_run(run_of(path).string()); }
  return {.step = source->manifest().step,
          .values = source->manifest().values,
          .missing = std::move(plan->missing),
          .unexpected = std::move(plan->unexpected)};
}

}  // namespace tessera
