#include "tessera/nn/tensor_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/world/mesh.hpp"
#include "tessera/world/world.hpp"

namespace tessera::nn {
namespace {

void check(const TensorOptions& options, int ranks) {
  if (options.slices < 1) {
    throw ConfigError(fmt::format("a row product cannot be computed in {} slices: give 1 or more",
                                  options.slices));
  }
  if (ranks > 1 || options == TensorOptions{}) { return; }
  throw ConfigError(
      fmt::format("{} needs a mesh with 2 or more ranks along tensor",
                  options.sequence_parallel ? "sequence parallelism" : "a row product in slices"));
}

Range slice(std::int64_t rows, std::int64_t index, std::int64_t size) {
  const std::int64_t first = rows * index / size;
  return {first, rows * (index + 1) / size - first};
}

Range common(const Range& a, const Range& b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max<std::int64_t>(std::min(a.end(), b.end()) - first, 0)};
}

View rows_of(Values x, const Range& rows, std::int64_t columns) {
  return {x.at(rows.first * columns).data, rows.elems * columns, x.dtype};
}

}  // namespace

struct TensorRanks::State {
  State(World& world_, const SubMesh& ranks, TensorOptions options_)
      : world{world_},
        place{ranks.index(), ranks.size()},
        options{options_},
        mark{world_.device().make_event()} {}

  [[nodiscard]] const Channel& made_channel() const {
    expects(channel.has_value(), "TensorRanks: it was made without a channel");
    return *channel;
  }
  void begin(Batch batch) const {
    submit_after(world.compute_stream(), made_channel(), std::move(batch), mark.get());
  }
  void end() const {
    made_channel().stream.record(mark.get());
    world.compute_stream().wait_for(mark.get());
  }
  void copy(Values to, ConstValues from, std::int64_t elems) const {
    const std::size_t bytes = static_cast<std::size_t>(elems) * size_of(to.dtype);
    if (bytes > 0) { world.device().copy(to.data, from.data, bytes, world.compute_stream()); }
  }
  void move(Batch batch) const {
    submit_in_order(world.compute_stream(), made_channel(), std::move(batch), mark.get());
  }

  World& world;
  TensorRank place;
  TensorOptions options;
  std::optional<Channel> channel = {};
  OwnedEvent mark;
};

TensorRanks::TensorRanks(World& world, const std::vector<MeshDim>& mesh, TensorOptions options)
    : TensorRanks{without_channel(world, mesh, options)} {
  if (state_) { state_->channel.emplace(Mesh{world, mesh}.along("tensor").beside("activations")); }
}

TensorRanks TensorRanks::without_channel(World& world, const std::vector<MeshDim>& mesh,
                                         TensorOptions options) {
  TensorRanks made;
  if (mesh.empty()) {
    check(options, 1);
    return made;
  }
  const SubMesh ranks = Mesh{world, mesh}.along("tensor");
  check(options, ranks.size());
  if (ranks.size() > 1) { made.state_ = std::make_shared<State>(world, ranks, options); }
  return made;
}

TensorRank TensorRanks::place() const noexcept {
  return state_ ? state_->place : TensorRank{};
}

TensorOptions TensorRanks::options() const noexcept {
  return state_ ? state_->options : TensorOptions{};
}

Range TensorRanks::own(std::int64_t rows) const noexcept {
  return options().sequence_parallel ? slice(rows, index(), size()) : Range{0, rows};
}

TensorGradient TensorRanks::row_gradient() const noexcept {
  return options().sequence_parallel ? TensorGradient::part : TensorGradient::equal;
}

// If the ranks do not divide the rows, each part is a broadcast, and below a reduction: the same
// bytes.
void TensorRanks::gather(Values x, std::int64_t rows, std::int64_t columns) const {
  if (!options().sequence_parallel || columns == 0) { return; }
  Batch batch{"gather rows"};
  if (rows % size() == 0) {
    batch.all_gather(rows_of(x, own(rows), columns), rows_of(x, {0, rows}, columns));
  } else {
    for (int rank = 0; rank < size(); ++rank) {
      const Range part = slice(rows, rank, size());
      if (part.elems > 0) { batch.broadcast(rows_of(x, part, columns), rank); }
    }
  }
  state_->move(std::move(batch));
}

void TensorRanks::gather(ConstValues mine, Values x, std::int64_t rows,
                         std::int64_t columns) const {
  if (!options().sequence_parallel) { return; }
  const Range own_rows = own(rows);
  state_->copy(x.at(own_rows.first * columns), mine, own_rows.elems * columns);
  gather(x, rows, columns);
}

void TensorRanks::copy_own(ConstValues x, Values mine, std::int64_t rows,
                           std::int64_t columns) const {
  if (!options().sequence_parallel) { return; }
  const Range own_rows = own(rows);
  state_->copy(mine, x.at(own_rows.first * columns), own_rows.elems * columns);
}

void TensorRanks::sum(Values x, std::int64_t rows, std::int64_t columns) const {
  begin_sum(x, rows, columns, {0, rows});
  end_sum();
}

void TensorRanks::begin_sum(Values x, std::int64_t rows, std::int64_t columns, Range some) const {
  if (!state_ || some.elems == 0 || columns == 0) { return; }
  Batch batch{"sum rows"};
  if (!state_->options.sequence_parallel) {
    batch.all_reduce(rows_of(x, some, columns));
  } else if (some.elems == rows && rows % size() == 0) {
    batch.reduce_scatter(rows_of(x, some, columns), rows_of(x, own(rows), columns));
  } else {
    for (int rank = 0; rank < size(); ++rank) {
      const Range part = common(some, slice(rows, rank, size()));
      if (part.elems > 0) { batch.reduce(rows_of(x, part, columns), ReduceOp::sum, rank); }
    }
  }
  state_->begin(std::move(batch));
}

void TensorRanks::end_sum() const {
  if (state_) { state_->end(); }
}

void TensorRanks::all_gather(float* parts, std::int64_t elems) const {
  if (!state_ || elems == 0) { return; }
  const View full{parts, elems * size(), DType::fp32};
  state_->move(Batch{"gather statistics"}.all_gather(full.slice(index() * elems, elems), full));
}

}  // namespace tessera::nn
