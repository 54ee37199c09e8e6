#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/mesh_job.hpp"
#include "tessera/base/moment_format.hpp"

namespace tessera::test {

/// Draws that follow from a seed alone, with every standard library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : bits_{seed} {}
  /// From 0 to `count` - 1.
  [[nodiscard]] int below(int count) {
    return static_cast<int>(bits_() % static_cast<std::uint64_t>(count));
  }
  [[nodiscard]] bool one_in(int count) { return below(count) == 0; }
  template <class Value>
  [[nodiscard]] Value of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }

 private:
  std::mt19937_64 bits_;
};

/// Empty, scalar, odd or of whole blocks.
inline Shape random_shape(Draws& draws) {
  const auto odd = [&] { return std::int64_t{1} + draws.below(draws.one_in(4) ? 200 : 20); };
  switch (draws.below(8)) {
    case 0:
      return draws.one_in(2) ? Shape{} : Shape{1};
    case 1:
      return draws.of(std::vector<Shape>{{0}, {0, 5}, {3, 0}});
    case 2:
      return {odd() * 64};
    case 3:
      return {odd(), 256};
    case 4:
      return {odd(), std::int64_t{3} * (1 + draws.below(6)), 2};
    default:
      return draws.one_in(3) ? Shape{odd()} : Shape{odd(), odd()};
  }
}

/// A cut that the shape allows; none for a scalar.
inline std::optional<TensorCut> random_cut(Draws& draws, const Shape& shape) {
  const auto dims = static_cast<int>(shape.dims().size());
  if (dims == 0 || draws.one_in(3)) { return {}; }
  TensorCut cut{.dim = draws.below(dims), .granule = 1 + draws.below(4)};
  const std::int64_t extent = shape.dims()[static_cast<std::size_t>(cut.dim)];
  if (extent > 0 && extent % 3 == 0 && draws.one_in(2)) {
    cut = {.dim = cut.dim, .granule = 1, .sections = 3};
  }
  return cut;
}

/// The units of a model, on any number of places along `pipe`: places are shares of 60.
inline std::vector<MeshUnit> random_units(Draws& draws) {
  std::vector<MeshUnit> units;
  std::vector<std::pair<std::string, ParameterSpec>> owners;  // of ties, with their units
  for (int u = 0, count = 1 + draws.below(4); u < count; ++u) {
    MeshUnit unit{.name = "unit" + std::to_string(u), .specs = {}, .place = draws.below(60)};
    std::vector<ParameterSpec> owned;
    for (int p = 0, parameters = 1 + draws.below(4); p < parameters; ++p) {
      const std::string name = "p" + std::to_string(p);
      if (!owners.empty() && draws.one_in(6)) {
        const auto& [owner, spec] =
            owners[static_cast<std::size_t>(draws.below(static_cast<int>(owners.size())))];
        ParameterSpec alias = spec;
        alias.name = name;
        alias.tied_to = TiedTo{owner, spec.name};
        unit.specs.push_back(std::move(alias));
        continue;
      }
      ParameterSpec spec{.name = name, .shape = random_shape(draws)};
      spec.trainable = !draws.one_in(5);
      if (draws.one_in(4)) { spec.dtype = DType::fp32; }
      spec.cut = random_cut(draws, spec.shape);
      if (draws.one_in(8) && (!spec.cut || spec.cut->dim == 0)) {
        spec.room = spec.shape.elems() + draws.below(100);
      }
      if (draws.one_in(4) && !spec.cut) { spec.tensor_gradient = TensorGradient::part; }
      owned.push_back(spec);
      unit.specs.push_back(std::move(spec));
    }
    for (ParameterSpec& spec : owned) { owners.emplace_back(unit.name, std::move(spec)); }
    units.push_back(std::move(unit));
  }
  return units;
}

/// A mesh and a strategy for it, of at most six ranks.
inline void draw_ranks(Draws& draws, ModelOptions& options) {
  const auto size = [&](int most) { return 1 + draws.below(most); };
  options.strategy =
      draws.of(std::vector{Strategy::dp, Strategy::ddp, Strategy::zero1, Strategy::zero2,
                           Strategy::zero3, Strategy::zero3, Strategy::hybrid});
  const bool keeps_all = options.strategy == Strategy::ddp || options.strategy == Strategy::dp;
  int ranks = 7;
  while (ranks > 6) {
    options.mesh = {{"pipe", options.strategy == Strategy::dp ? 1 : size(3)},
                    {"replicate", size(3)},
                    {"shard", keeps_all ? 1 : size(3)},
                    {"tensor", options.strategy == Strategy::dp ? 1 : size(3)}};
    std::erase_if(options.mesh, [](const MeshDim& dim) { return dim.size == 1; });
    ranks = options.mesh.empty() ? 1 : MeshShape{options.mesh}.ranks();
  }
  if (options.mesh.empty()) {
    options.mesh = {keeps_all ? MeshDim{"replicate", 1} : MeshDim{"shard", 1}};
  }
}

/// A job whose model, precision, optimizer and ranks are drawn. Some are refused when the model is
/// made.
inline MeshJob random_job(Draws& draws) {
  MeshJob job;
  draw_ranks(draws, job.options);
  job.options.compute = draws.of(std::vector{DType::fp32, DType::bf16, DType::fp16});
  const bool bf16 = job.options.compute == DType::bf16;
  if (bf16 && draws.one_in(2)) { job.options.master_weights = MasterWeights::remainder; }
  job.optimizer =
      draws.of(std::vector<Optimizer>{AdamW{.lr = 0.02F}, Adam{.lr = 0.02F}, Lion{.lr = 0.001F},
                                      SGD{.lr = 0.02F}, SGD{.lr = 0.02F, .momentum = 0.0F}});
  job.update.moments =
      draws.of(std::vector{MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8});
  if (job.update.moments == MomentFormat::int8) { job.options.align_elems = kMomentBlock; }
  if (draws.one_in(3)) {
    job.options.offload = draws.of(std::vector{Offload::optimizer, Offload::state});
  }
  job.initial = init::normal(static_cast<std::uint64_t>(draws.below(1000)), 0.5F);
  job.units = [units = random_units(draws)](int places) {
    std::vector<MeshUnit> placed = units;
    for (MeshUnit& unit : placed) { unit.place = unit.place * places / 60; }
    return placed;
  };
  return job;
}

/// The same model and optimizer on other ranks.
inline MeshJob elsewhere(Draws& draws, const MeshJob& job) {
  MeshJob other = job;
  draw_ranks(draws, other.options);
  other.options.offload = Offload::none;
  other.initial = init::constant(0.25F);
  return other;
}

/// Values and buffers of a trainer, the same on all ranks. It holds the buffers' memory.
class RandomExtras {
 public:
  explicit RandomExtras(Draws& draws) {
    const std::vector<std::string> texts{"", "1", "a\"b\\\n", "\xC3\xA9\xE2\x82\xAC", "0x1p-3"};
    for (int i = 0, count = draws.below(4); i < count; ++i) {
      extras_.values["value " + std::to_string(i)] = draws.of(texts);
    }
    const std::vector<std::pair<std::string, int>> dtypes{{"F32", 4}, {"I64", 8},  {"BF16", 2},
                                                          {"U8", 1},  {"BOOL", 1}, {"F64", 8}};
    for (int i = 0, count = draws.below(3); i < count; ++i) {
      const auto [dtype, bytes] = draws.of(dtypes);
      const Shape shape = random_shape(draws);
      std::string& memory =
          memory_.emplace_back(static_cast<std::size_t>(shape.elems() * bytes), '\0');
      for (char& c : memory) { c = static_cast<char>(draws.below(2)); }
      extras_.buffers.push_back({.name = "buffer " + std::to_string(i),
                                 .shape = shape,
                                 .values = {memory.data(), shape.elems(), dtype}});
    }
  }
  RandomExtras(const RandomExtras&) = delete;
  RandomExtras& operator=(const RandomExtras&) = delete;

  [[nodiscard]] const CheckpointExtras& get() const { return extras_; }
  [[nodiscard]] const std::deque<std::string>& memory() const { return memory_; }
  /// Overwrites the buffers.
  void forget() {
    for (std::string& memory : memory_) { std::ranges::fill(memory, '\x7F'); }
  }

 private:
  CheckpointExtras extras_;
  std::deque<std::string> memory_;  // whose elements stay where they are
};

}  // namespace tessera::test
