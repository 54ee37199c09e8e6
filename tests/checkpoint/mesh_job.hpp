#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/toy_job.hpp"
#include "kernels/support/convert.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::test {

/// A unit of a job, and its place along `pipe`.
struct MeshUnit {
  std::string name;
  std::vector<ParameterSpec> specs;
  int place = 0;
};

/// Units that use every kind of tensor cut, and a table that the first place and the last share.
inline std::vector<MeshUnit> cut_in_every_way(int places) {
  const int last = places - 1;
  const TensorCut columns{.dim = 1};
  const TensorCut heads{.dim = 1, .granule = 3, .sections = 3};
  return {{"table", {{.name = "w", .shape = {37, 5}, .room = 200, .cut = TensorCut{}}}, 0},
          {"attention",
           {{.name = "norm", .shape = {11}, .tensor_gradient = TensorGradient::part},
            {.name = "qkv", .shape = {20, 45}, .cut = heads},
            {.name = "fixed", .shape = {9, 4}, .trainable = false, .cut = columns},
            {.name = "out", .shape = {15, 20}, .cut = TensorCut{.granule = 3}},
            {.name = "bias", .shape = {20}, .dtype = DType::fp32}},
           last / 2},
          {"wide",
           {{.name = "up", .shape = {9, 70}, .cut = TensorCut{.dim = 1, .sections = 2}},
            {.name = "chunks", .shape = {6, 512}, .cut = TensorCut{.dim = 1, .granule = 64}},
            {.name = "fixed", .shape = {90}, .trainable = false},
            {.name = "few", .shape = {2, 3}, .dtype = DType::fp32, .cut = TensorCut{}}},
           last},
          {"head",
           {{.name = "scale", .shape = {5}, .tensor_gradient = TensorGradient::part},
            {.name = "w",
             .shape = {37, 5},
             .tied_to = TiedTo{"table", "w"},
             .room = 200,
             .cut = TensorCut{}}},
           last}};
}

/// Units whose cuts keep blocks of 8-bit moments whole.
inline std::vector<MeshUnit> in_whole_blocks(int places) {
  const int last = places - 1;
  return {{"rows", {{.name = "w", .shape = {9, 256}, .cut = TensorCut{}}}, 0},
          {"bias", {{.name = "w", .shape = {70}}}, last / 2},
          {"columns",
           {{.name = "w", .shape = {3, 1024}, .cut = TensorCut{.dim = 1, .granule = 256}},
            {.name = "bias", .shape = {300}}},
           last}};
}

/// A job on a mesh. A step has the same samples on any mesh.
struct MeshJob {
  static constexpr int kGlobalBatch = 12;

  ModelOptions options = {.strategy = Strategy::zero3};
  Optimizer optimizer = AdamW{.lr = 0.02F, .weight_decay = 0.01F};
  OptimizerOptions update = {.clip_norm = 0.5F};
  Initializer initial = init::normal(/*seed=*/7, /*stddev=*/0.5F);
  /// The units of a model on this many places along `pipe`.
  std::function<std::vector<MeshUnit>(int places)> units = cut_in_every_way;

  [[nodiscard]] MeshJob on(std::vector<MeshDim> mesh) const {
    MeshJob job = *this;
    job.options.mesh = std::move(mesh);
    return job;
  }
  [[nodiscard]] MeshJob under(Strategy strategy) const {
    MeshJob job = *this;
    job.options.strategy = strategy;
    return job;
  }
  [[nodiscard]] int ranks() const {
    return options.mesh.empty() ? 1 : MeshShape{options.mesh}.ranks();
  }
};

/// A rank of the job. The loss is half the squared distance of the weights from a target, and each
/// sample adds its own slope. In a pipeline, the job's list of units gives each unit its place.
class MeshTrainer {
 public:
  MeshTrainer(World& world, const MeshJob& job)
      : world_{world},
        mesh_{world, job.options.mesh.empty() ? MeshShape{{{"shard", world.size()}}}
                                              : MeshShape{job.options.mesh}},
        model_{world, job.options} {
    for (MeshUnit& unit : job.units(mesh_.size("pipe"))) {
      add(unit.name, std::move(unit.specs), unit.place);
    }
    model_.materialize(job.initial);
    model_.optimize_with(job.optimizer, job.update);
  }

  [[nodiscard]] ShardedModel& model() { return model_; }

  /// One step. Calls `before_update` once the gradients are complete.
  void step(const std::function<void()>& before_update = {}) {
    for (const Unit unit : units_) {
      if (is_mine(unit)) { (void)model_.forward(unit); }
    }
    for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
      if (is_mine(*unit)) { backward(*unit); }
    }
    if (before_update) { before_update(); }
    model_.step();
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) { step(); }
  }

  /// *Collective.* The loss of the current weights, the same on all ranks.
  double loss() {
    double sum = 0.0;
    model_.export_state(StateTensor::parameters,
                        [&](const ParameterInfo& info, std::span<const float> values) {
                          for (std::size_t i = 0; i < values.size(); ++i) {
                            const double off = values[i] - target(info.id, i);
                            sum += 0.5 * off * off / 1000.0;
                          }
                        });
    return sum;
  }

 private:
  static float target(std::uint32_t id, std::size_t element) {
    return static_cast<float>((5UL * id + element * 3) % 17) / 16.0F;
  }
  static float slope(std::uint32_t id, std::int64_t element, std::int64_t sample) {
    return static_cast<float>((7L * id + element * 3 + sample * 5) % 13 - 6) / 64.0F;
  }

  void add(const std::string& name, std::vector<ParameterSpec> specs, int place) {
    if (model_.options().compute == DType::fp32) {
      for (ParameterSpec& spec : specs) { spec.dtype.reset(); }
    }
    std::vector<std::uint32_t>& ids = ids_.emplace_back();
    for (const ParameterSpec& spec : specs) { ids.push_back(spec.tied_to ? 0 : next_id_++); }
    units_.push_back(model_.add_unit(name, std::move(specs), {.pipe = place}));
    places_.push_back(place);
  }
  [[nodiscard]] bool is_mine(Unit unit) const {
    return places_[unit.index()] == mesh_.index("pipe");
  }

  void backward(Unit unit) {
    const UnitLayout& layout = model_.layout(unit);
    const BackwardScope scope = model_.backward(unit);
    const float scale = model_.loss_scale() == nullptr ? 1.0F : *model_.loss_scale();
    for (std::size_t p = 0; p < layout.specs().size(); ++p) {
      const ParameterSpec& spec = layout.specs()[p];
      if (!scope.has_grad(spec.name)) { continue; }
      const std::uint32_t id = ids_[unit.index()][p];
      const TensorPart& part = layout.part(p);
      const Tensor to = scope.grad(spec.name);
      const std::vector<float> weights = read(scope[spec.name], part.elems(), scope.stream());
      std::vector<float> gradient = read(to, part.elems(), scope.stream());
      part.for_each_run({0, part.elems()}, [&](const Range& whole, std::int64_t at) {
        for (std::int64_t i = 0; i < whole.elems; ++i) {
          const auto mine = static_cast<std::size_t>(at + i);
          gradient[mine] += scale * gradient_of(spec, id, whole.first + i, weights[mine]);
        }
      });
      world_.device().copy_in(to.data(), gradient.data(), gradient.size() * sizeof(float),
                              scope.stream());
      scope.stream().wait();
    }
  }

  /// The mean over this rank's samples. With gradients in parts, a rank along `tensor` contributes
  /// to every n-th element.
  [[nodiscard]] float gradient_of(const ParameterSpec& spec, std::uint32_t id, std::int64_t element,
                                  float weight) const {
    const int ranks = mesh_.size("tensor");
    const bool in_parts = spec.tensor_gradient == TensorGradient::part;
    if (in_parts && element % ranks != mesh_.index("tensor")) { return 0.0F; }
    const int rows = std::max(MeshJob::kGlobalBatch / mesh_.shape().data_ranks(), 1);
    const int data_rank = mesh_.index("replicate") * mesh_.size("shard") + mesh_.index("shard");
    float sum = 0.0F;
    for (int row = 0; row < rows; ++row) {
      const std::int64_t sample =
          model_.steps() * MeshJob::kGlobalBatch + std::int64_t{data_rank} * rows + row;
      sum += weight - target(id, static_cast<std::size_t>(element)) + slope(id, element, sample);
    }
    return sum / static_cast<float>(rows);
  }

  template <class Of>
  std::vector<float> read(const Of& from, std::int64_t elems, Stream stream) {
    const auto count = static_cast<std::size_t>(elems);
    std::vector<std::byte> bytes(count * size_of(from.dtype()));
    world_.device().copy_out(bytes.data(), from.data(), bytes.size(), stream);
    stream.wait();
    std::vector<float> values(count);
    kernels::widen(values.data(), {bytes.data(), from.dtype()}, elems);
    return values;
  }

  World& world_;
  Mesh mesh_;
  ShardedModel model_;
  std::vector<Unit> units_;
  std::vector<int> places_;
  std::vector<std::vector<std::uint32_t>> ids_;  // by unit and parameter; an alias has its owner's
  std::uint32_t next_id_ = 0;
};

/// Runs `body` on each rank of the job; ranks are threads.
inline void run_job(const MeshJob& job, const std::function<void(World&, MeshTrainer&)>& body) {
  run_ranks(job.ranks(), [&](World& world) {
    MeshTrainer trainer{world, job};
    body(world, trainer);
  });
}

/// Trains `steps` steps and saves into `folder`; returns the checkpoint.
inline std::filesystem::path train_and_save(const MeshJob& job, int steps,
                                            const std::filesystem::path& folder) {
  std::filesystem::path saved;
  run_job(job, [&](World& world, MeshTrainer& trainer) {
    trainer.steps(steps);
    const std::filesystem::path path = save(trainer.model(), folder);
    if (world.rank() == 0) { saved = path; }
  });
  return saved;
}

}  // namespace tessera::test
