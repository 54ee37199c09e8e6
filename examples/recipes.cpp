// Recipes for a custom trainer (docs/recipes.md): saving its weights and reading them back, initial
// values that are drawn in sequence, activations that a plan counts, and ranks on a mesh.
//
//   recipes FOLDER                          for files that it writes
//
// Exit status: 0 if all of it holds under every strategy on 1 to 3 ranks, and on a mesh of 4, 1 if
// not, 2 for bad usage.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/weights.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/tessera.hpp"

namespace {

using tessera::Strategy;
using Weights = std::map<std::string, std::vector<float>>;

constexpr std::uint32_t kSeed = 7;

// ------------------------------------------------------------------ initial values in sequence

// One stream of numbers over the whole model, in the order in which parameters are declared, as a
// script draws it that fills one tensor after the other. Every rank also draws the numbers before
// its own part, and discards them.
class DrawnInSequence {
 public:
  DrawnInSequence(const tessera::ShardedModel& model, std::uint32_t seed) : seed_{seed} {
    std::int64_t next = 0;
    for (std::size_t u = 0; u < model.unit_count(); ++u) {
      for (const tessera::ParameterSpec& spec : model.layout(model.unit(u)).specs()) {
        if (spec.tied_to) { continue; }
        begins_.push_back(next);  // by ParameterInfo::id
        next += spec.shape.elems();
      }
    }
    restart();
  }

  void operator()(const tessera::ParameterInfo& parameter, std::int64_t first,
                  std::span<float> out) {
    const std::int64_t begin = begins_[parameter.id] + first;
    if (begin < drawn_) { restart(); }  // frozen parameters may be asked for after later ones
    while (drawn_ < begin) { (void)draw(); }
    for (float& x : out) { x = draw(); }
  }

 private:
  void restart() {
    engine_.seed(seed_);
    normal_.reset();
    drawn_ = 0;
  }
  float draw() {
    ++drawn_;
    return normal_(engine_);
  }

  std::uint32_t seed_;
  std::vector<std::int64_t> begins_;
  std::mt19937 engine_;
  std::normal_distribution<float> normal_{0.0F, 0.02F};
  std::int64_t drawn_ = 0;
};

// ------------------------------------------------------------------ activations

// The trainer's own memory, in which a pass keeps its intermediate results.
struct Activations {
  Activations(tessera::World& world, std::size_t rows)
      : counted_by_world{world.allocate(tessera::Category::activations,
                                        rows * kWidth * sizeof(float), "activations")} {
    // Memory from elsewhere (a tensor library, a vector) is registered. A rank that only counts
    // does not allocate it, but counts it all the same.
    if (!world.simulated()) { own.resize(rows); }
    registered = world.memory().register_memory(tessera::Category::activations,
                                                rows * sizeof(float), "row sums");
  }

  static constexpr std::size_t kWidth = 5;
  tessera::Buffer counted_by_world;
  std::vector<float> own;
  tessera::CountedMemory registered;
};

// ------------------------------------------------------------------ the trainer

struct Trainer {
  Trainer(tessera::World& world, Strategy strategy)
      : model{world, {.strategy = strategy, .shard_group = strategy == Strategy::hybrid ? 1 : 0}},
        layer{model.add_unit(
            "layer", {{"weight", {7, 5}}, {"scale", {7}, /*trainable=*/false}, {"bias", {7}}})},
        head{model.add_unit("head", {{"weight", {3, 7}}})} {}

  void train(tessera::World& world, std::size_t rows, int steps) {
    Activations activations{world, rows};
    for (int step = 0; step < steps; ++step) {
      float sum = 0;
      for (const tessera::Unit unit : {layer, head}) {
        const auto p = model.forward(unit);
        world.compute([&] {
          activations.counted_by_world.floats()[0] = p["weight"][0];
          activations.own[0] += p["weight"][0];
          sum += activations.own[0];
        });
      }
      for (const tessera::Unit unit : {head, layer}) {
        const auto g = model.backward(unit);
        world.compute([&] { g.grad("weight")[0] += sum; });
      }
      model.step();
    }
  }

  tessera::ShardedModel model;
  tessera::Unit layer;
  tessera::Unit head;
};

Weights weights_of(tessera::ShardedModel& model) {
  Weights weights;
  model.export_state(tessera::StateTensor::parameters,
                     [&](const tessera::ParameterInfo& parameter, std::span<const float> values) {
                       weights[parameter.full_name()] = {values.begin(), values.end()};
                     });
  return weights;
}

// The names in the file are the trainer's choice.
std::string name_in_file(const tessera::ParameterInfo& parameter) {
  return "model." + parameter.full_name();
}

// A rank's part of all three recipes. Returns whether they hold.
bool run_rank(tessera::World& world, Strategy strategy, const std::filesystem::path& file) {
  Trainer trainer{world, strategy};
  trainer.model.materialize(DrawnInSequence{trainer.model, kSeed});
  const Weights initial = weights_of(trainer.model);
  std::mt19937 engine{kSeed};
  std::normal_distribution<float> normal{0.0F, 0.02F};
  bool holds = true;
  for (const char* name : {"layer.weight", "layer.scale", "layer.bias", "head.weight"}) {
    for (const float x : initial.at(name)) { holds = holds && x == normal(engine); }
  }

  trainer.model.optimize_with(tessera::AdamW{.lr = 1e-2F});
  trainer.train(world, /*rows=*/64, /*steps=*/2);
  tessera::save_weights(trainer.model, file, name_in_file);

  Trainer again{world, strategy};
  again.model.materialize(tessera::weights_from(file, name_in_file));
  return holds && weights_of(again.model) == weights_of(trainer.model);
}

// A job that only counts finds what ranks hold, to the byte.
bool plan_holds(Strategy strategy, int ranks) {
  const auto program = [&](tessera::World& world) {
    Trainer trainer{world, strategy};
    trainer.model.materialize(tessera::init::constant(1.0F));
    trainer.model.optimize_with(tessera::AdamW{.lr = 1e-2F});
    trainer.train(world, /*rows=*/std::size_t{1} << 16U, /*steps=*/1);
    (void)trainer.model.report();
  };
  const auto planned = tessera::plan({.ranks = ranks}, program);
  std::mutex mutex;
  bool holds = true;
  tessera::run_ranks(ranks, [&](tessera::World& world) {
    program(world);
    const tessera::PlannedRank& mine = world.rank() == 0 ? planned.front() : planned.back();
    const std::scoped_lock lock{mutex};
    holds = holds && world.memory().report().peak_bytes == mine.memory.peak_bytes;
  });
  return holds;
}

// ------------------------------------------------------------------ ranks on a mesh

// Pairs of neighbours share a copy of the optimizer's state: together they update every element.
bool mesh_holds(tessera::World& world) {
  const std::vector<tessera::MeshDim> dims{{"replicate", world.size() / 2}, {"shard", 2}};
  tessera::ShardedModel model{world, {.strategy = Strategy::zero1, .mesh = dims}};
  (void)model.add_unit("layer", {{"weight", {7, 50}}});
  model.materialize(tessera::init::constant(1.0F));
  model.optimize_with(tessera::AdamW{});
  double updated = 0;
  model.export_masters(
      [&](const tessera::ParameterInfo&, std::int64_t, std::span<const float> values) {
        updated += static_cast<double>(values.size());
      });

  // The ranks of a copy, for the program's own collectives.
  const tessera::Mesh mesh{world, dims};
  const tessera::Channel copy = mesh.along("shard").reduce();
  tessera::Batch batch{"updated elements"};
  batch.all_reduce({&updated, 1, tessera::DType::fp64});
  copy.communicator.submit(std::move(batch), copy.stream);
  copy.stream.wait();
  return updated == 7 * 50;
}

bool all_hold(const std::filesystem::path& folder) {
  bool hold = true;
  std::mutex of_meshes;
  tessera::run_ranks(4, [&](tessera::World& world) {
    const bool mine = mesh_holds(world);
    const std::scoped_lock lock{of_meshes};
    hold = hold && mine;
  });
  for (const Strategy chosen : tessera::all_strategies()) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      std::mutex mutex;
      tessera::run_ranks(ranks, [&](tessera::World& world) {
        const bool mine = run_rank(world, chosen, folder / "weights.safetensors");
        const std::scoped_lock lock{mutex};
        hold = hold && mine;
      });
      hold = hold && plan_holds(chosen, ranks);
    }
  }
  return hold;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: recipes FOLDER\n", stderr);
    return 2;
  }
  try {
    const bool hold = all_hold(argv[1]);
    std::puts(hold ? "every recipe holds" : "a recipe does not hold");
    return hold ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
