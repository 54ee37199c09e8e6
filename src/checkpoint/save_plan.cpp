#include "checkpoint/save_plan.hpp"

#include <utility>

#include "checkpoint/split_chunks.hpp"
#include "checkpoint/state_names.hpp"

namespace tessera::checkpoint {
namespace {

bool has_whole_chunks(const PlannedPiece& piece, const CheckpointLayout& layout) {
  const std::uint64_t chunk = layout.tensors()[piece.tensor].chunk_bytes;
  const std::uint64_t tensor_bytes = layout.places()[piece.tensor].bytes;
  bool whole = true;
  piece.for_each_run(0, piece.bytes,
                     [&](std::uint64_t first, std::uint64_t /*at*/, std::uint64_t bytes) {
                       const std::uint64_t end = first + bytes;
                       const bool ends = end % chunk == 0 || end == tensor_bytes;
                       whole = whole && first % chunk == 0 && ends;
                     });
  return whole;
}

}  // namespace

SavePlan::SavePlan(const engine::TrainingState& state, const SaveOptions& options)
    : units_{state.units()} {
  // Weights come first in the layout.
  CheckpointLayout::Set weights{.name = "model", .tensors = {}};
  CheckpointLayout::Set others{.name = "optimizer", .tensors = {}};
  std::vector<std::string> other_roles;
  std::vector<std::size_t> place;  // index in its set, by tensor of the state
  for (const engine::StateTensorInfo& info : state.tensors()) {
    const bool weight = info.kind == engine::StateKind::weight;
    CheckpointLayout::Set& set = weight ? weights : others;
    (weight ? roles_ : other_roles).emplace_back(role_of(info.kind));
    place.push_back(set.tensors.size());
    set.tensors.push_back(checkpoint_tensor(info, options.name));
  }
  const std::size_t weight_count = weights.tensors.size();
  roles_.insert(roles_.end(), other_roles.begin(), other_roles.end());
  layout_.emplace(std::vector<CheckpointLayout::Set>{std::move(weights), std::move(others)},
                  options.shard_bytes);

  for (const engine::StatePiece& piece : state.share()) {
    const engine::StateTensorInfo& info = state.tensors()[piece.tensor];
    const bool weight = info.kind == engine::StateKind::weight;
    const std::uint64_t size = engine::bytes_of(info.format);
    PlannedPiece planned{.tensor = place[piece.tensor] + (weight ? 0 : weight_count),
                         .first_byte = static_cast<std::uint64_t>(piece.first()) * size,
                         .bytes = static_cast<std::uint64_t>(piece.elems.elems) * size,
                         .unit = piece.unit,
                         .data = piece.data,
                         .on_host = piece.on_host,
                         .cut = piece.is_one_run() ? nullptr : &piece,
                         .elem_bytes = size};
    planned.whole_chunks = has_whole_chunks(planned, *layout_);
    splits_chunks_ = splits_chunks_ || !planned.whole_chunks;
    if (!planned.whole_chunks) { split_balance_ += balance_of_splits(planned, *layout_); }
    pieces_.push_back(planned);
  }
}

void list_in(Manifest& manifest, const CheckpointLayout& layout,
             const std::vector<std::string>& roles) {
  for (const CheckpointFile& file : layout.files()) { manifest.files[file.name] = file.bytes; }
  for (const CheckpointLayout::Index& index : layout.indices()) {
    manifest.files[index.name] = index.text.size();
  }
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
    const CheckpointTensor& tensor = layout.tensors()[i];
    const TensorPlace& place = layout.places()[i];
    manifest.tensors.push_back({.name = tensor.name,
                                .role = roles[i],
                                .dtype = tensor.dtype,
                                .shape = tensor.shape,
                                .chunk_bytes = tensor.chunk_bytes,
                                .file = layout.files()[place.file].name,
                                .first_byte = place.first_byte,
                                .bytes = place.bytes,
                                .sums = {}});
  }
}

}  // namespace tessera::checkpoint
