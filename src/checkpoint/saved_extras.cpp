#include "checkpoint/saved_extras.hpp"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/json_string.hpp"
#include "checkpoint/state_names.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

std::uint64_t bytes_of_tensors(const checkpoint::CheckpointLayout& layout) {
  std::uint64_t bytes = 0;
  for (const checkpoint::TensorPlace& place : layout.places()) {
    bytes += Arena::need(place.bytes);
  }
  return bytes;
}

}  // namespace

BufferView::BufferView(View view) : BufferView{view.data, view.elems, view.dtype} {}

BufferView::BufferView(void* data_, std::int64_t elems_, DType dtype_)
    : BufferView{data_, elems_, std::string{checkpoint::dtype_name(dtype_)}} {}

BufferView::BufferView(void* data_, std::int64_t elems_, std::string dtype_)
    : data{data_}, elems{elems_}, dtype{std::move(dtype_)} {}

checkpoint::CheckpointLayout checkpoint::layout_of_extras(
    const std::vector<CheckpointBuffer>& buffers) {
  checkpoint::CheckpointLayout::Set set{.name = "extras", .tensors = {}};
  for (const CheckpointBuffer& buffer : buffers) {
    if (buffer.values.elems != buffer.shape.elems()) {
      throw ContractError{fmt::format(
          "checkpoint: buffer '{}' has {} elements, but its shape {} has {}", buffer.name,
          buffer.values.elems, buffer.shape.to_string(), buffer.shape.elems())};
    }
    if (buffer.values.data == nullptr && buffer.values.elems > 0) {
      throw ContractError{fmt::format(
          "checkpoint: buffer '{}' has {} elements, but no address; give that of the first",
          buffer.name, buffer.values.elems)};
    }
    set.tensors.push_back(
        {.name = buffer.name,
         .dtype = buffer.values.dtype,
         .shape = buffer.shape,
         .chunk_bytes = checkpoint::chunk_bytes_of("extra", buffer.values.dtype)});
  }
  return {{std::move(set)}, ~std::uint64_t{0}};
}

checkpoint::SavedExtras::SavedExtras(World& world, const CheckpointExtras& extras)
    : values_{extras.values}, layout_{checkpoint::layout_of_extras(extras.buffers)} {
  if (values_.contains("")) {
    throw ContractError{"checkpoint: a value has no name; name every value"};
  }
  std::string ignored;
  for (const auto& [name, value] : values_) {
    checkpoint::append_json_string(ignored, name, "the name of a value of a checkpoint");
    checkpoint::append_json_string(ignored, value, "a value of a checkpoint");
  }
  if (world.rank() != 0) { return; }
  memory_ =
      world.allocate_host(Category::workspace, bytes_of_tensors(layout_), "checkpoint extras");
  copied_ = world.device().make_event();
  auto* to = static_cast<std::byte*>(memory_.data());
  for (std::size_t i = 0; i < extras.buffers.size(); ++i) {
    const std::uint64_t bytes = layout_.places()[i].bytes;
    world.device().copy_out(to, extras.buffers[i].values.data, bytes, world.compute_stream());
    to += Arena::need(bytes);
  }
  world.compute_stream().record(copied_.get());
}

void checkpoint::SavedExtras::write(checkpoint::TensorWriter& writer) const {
  copied_.get().wait();
  const auto* from = static_cast<const std::byte*>(memory_.data());
  for (std::size_t i = 0; i < layout_.places().size(); ++i) {
    const std::span bytes{from, layout_.places()[i].bytes};
    if (!bytes.empty()) {
      writer.sum(i, 0, bytes);
      writer.write(i, 0, bytes);
    }
    from += Arena::need(bytes.size());
  }
}

}  // namespace tessera
